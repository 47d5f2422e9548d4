"""What a decoding asked of the device, forward by forward, without what the model said.

It is read from a trace, kept as a JSON line, and can be replayed on a model of any size, whose answers do not
matter then: windows, branches and the positions that were filled decide what a forward costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ripple.errors import RippleError
from ripple.trace import Event


class ScheduledForward(NamedTuple):
    """One forward, and what changed after it. Positions count from the start of the response."""

    start: int  # of the window
    stop: int
    branches: int  # a shadow of the window counts as one
    commits: tuple[int, ...]
    revokes: tuple[int, ...] = ()  # these come first


def forwards_of(events: Sequence[Event], where: str) -> tuple[ScheduledForward, ...]:
    """Return the forwards of a trace, without those that the engine itself asks for, for a next token."""
    first = len(events[0].data["prompt"])
    forwards: list[ScheduledForward] = []
    for event in events:
        data = event.data
        if event.kind == "forward":
            start, stop = (pos - first for pos in data["window"])
            forwards.append(ScheduledForward(start, stop, data["canvases"] - 1, ()))
        elif event.kind == "commit" and data["cause"] == "next_token":
            forwards.pop()
        elif event.kind in ("commit", "revoke") and forwards:
            last, pos = forwards[-1], [pos - first for pos in data["pos"]]
            if event.kind == "commit":
                last = last._replace(commits=tuple(sorted((*last.commits, *pos))))
            else:
                kept = tuple(p for p in last.commits if p not in pos)
                fresh = tuple(p for p in pos if p not in last.commits)
                last = last._replace(commits=kept, revokes=tuple(sorted(last.revokes + fresh)))
            forwards[-1] = last
    if not forwards or events[-1].kind != "end" or events[-1].data["finish"] not in ("end", "length"):
        raise RippleError(f"{where}: the decoding does not end, so it cannot be replayed.")
    return tuple(forwards)


def as_lists(forwards: Iterable[ScheduledForward]) -> list[list[Any]]:
    """Return forwards as JSON values: start, stop, branches, and runs of positions."""
    rows = []
    for one in forwards:
        row = [one.start, one.stop, one.branches, _runs(one.commits)]
        rows.append([*row, _runs(one.revokes)] if one.revokes else row)
    return rows


def from_lists(rows: Iterable[Sequence[Any]]) -> tuple[ScheduledForward, ...]:
    """Return the forwards that `as_lists` wrote."""
    return tuple(ScheduledForward(*row[:3], *(tuple(_positions(runs)) for runs in row[3:])) for row in rows)


def _runs(positions: Iterable[int]) -> list[int]:
    """Return positions as pairs of first and length, one after the other."""
    runs: list[int] = []
    for pos in sorted(positions):
        if runs and pos == runs[-2] + runs[-1]:
            runs[-1] += 1
        else:
            runs += [pos, 1]
    return runs


def _positions(runs: Sequence[int]) -> Iterable[int]:
    for first, n in zip(runs[::2], runs[1::2], strict=True):
        yield from range(first, first + n)
