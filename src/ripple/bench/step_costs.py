"""What a tick costs on the device where `ripple bench step` was run, from its lines, and what it holds.

Between measured sizes costs are straight lines; above the largest a row costs what it costs there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ripple.errors import RippleError
from ripple.files import Line, read_lines

BLOCK = 32
WHOLE = 0  # an ask for everything: prompt and response
Points = dict[int, float]


@dataclass(frozen=True)
class StepCosts:
    """Milliseconds of forwards and gigabytes of keys, by the number of positions of a canvas."""

    whole_ms: dict[int, Points]  # positions -> canvases of a forward without a cache -> ms
    cached_ms: dict[int, Points]  # positions -> rows of a forward on stored keys -> ms
    store_gb: Points  # positions -> beside the weights, per request
    device: str

    @classmethod
    def read(cls, path: Path, shape: str) -> StepCosts:
        """Take the lines of one model shape."""
        lines = [line for line in read_lines(path) if line.get("bench") == "step" and line["shape"] == shape]
        whole = _by_positions((x for x in lines if x["cache"] == "none" and not x["candidates"]), "batch")
        cached = _by_positions((x for x in lines if x["cache"] == "dual"), "rows")
        if not whole or not cached:
            raise RippleError(f"{path} has no steps of {shape} without a cache and with dual.")
        held = [line for line in lines if line["cache"] == "dual" and not line["candidates"]]
        most = max(line["batch"] for line in held)
        store = {
            x["positions"]: x["memory_beside_weights_gb"] / most for x in held if x["batch"] == most
        }  # fmt: skip
        return cls(whole, cached, dict(sorted(store.items())), str(lines[0]["device"]))

    def tick_s(self, asks: Sequence[int], positions: int) -> float:
        """Return the seconds of a tick: `WHOLE`, or rows of a block, or minus the rows of a response.

        Each of the three is a forward of its own.
        """
        return (
            self.whole_s(sum(ask == WHOLE for ask in asks), positions)
            + self.cached_s(sum(ask for ask in asks if ask > 0), positions)
            + self.cached_s(-sum(ask for ask in asks if ask < 0), positions)
        )

    def whole_s(self, n: int, positions: int) -> float:
        """Return the seconds of a forward of n whole canvases."""
        return _at(self.whole_ms, n, positions) / 1e3 if n else 0.0

    def cached_s(self, rows: float, positions: int) -> float:
        """Return the seconds of a forward of so many rows on stored keys."""
        return _at(self.cached_ms, rows, positions) / 1e3 if rows else 0.0

    def request_gb(self, positions: int) -> float:
        """Return what the keys of one request take."""
        return float(np.interp(positions, list(self.store_gb), list(self.store_gb.values())))


def _by_positions(lines: Iterable[Line], size: str) -> dict[int, Points]:
    points: dict[int, Points] = {}
    for line in lines:
        points.setdefault(line["positions"], {})[line[size]] = line["step_ms"]
    return {at: dict(sorted(points[at].items())) for at in sorted(points)}


def _at(costs: dict[int, Points], size: float, positions: int) -> float:
    """Return the cost of a size, between the measured numbers of positions."""
    at = [_along(points, size) for points in costs.values()]
    return float(np.interp(positions, list(costs), at))


def _along(points: Points, size: float) -> float:
    """Return the cost of a size; less than the least measured one costs as much, for the weights are read."""
    last = next(reversed(points))
    if size > last:
        return points[last] * size / last
    return float(np.interp(size, list(points), list(points.values())))
