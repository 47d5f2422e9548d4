"""What the engine adds to a bare forward at batch 1: planning, statistics, the decoder, bookkeeping.

Times are medians over one run's ticks; the model's own time (body and head) is taken out of each tick, so the
machine's speed matters little and its noise cancels.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ripple.bench.folder import check_folder
from ripple.engine.engine import Engine
from ripple.engine.load import load
from ripple.fields import param
from ripple.measurement import Measurement
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.options import Options

DECODERS = ("default", "confidence", "klass", "eb", "wino", "lopa", "rps")


@dataclass(frozen=True)
class Overhead(Measurement):
    """Measure what a step costs beside the model's own forward, for each decoder."""

    name = "overhead"

    folder: Path | None = param(None, "a checkpoint; none is a small random one")
    length: int = param(128, "response positions", within="[1, inf)")

    def run(self) -> dict[str, Any]:
        """Return, per decoder, milliseconds per step inside the model and beside it."""
        if self.folder is not None:
            return self._measured(check_folder(self.folder))
        with tempfile.TemporaryDirectory() as scratch:
            written = write_random_checkpoint(
                Path(scratch), "llada", vocab_size=2048, d_model=128, n_layers=4
            )
            return self._measured(written)

    def _measured(self, folder: Path) -> dict[str, Any]:
        engine = load(folder, device="cpu", dtype="float32")
        clock = _Clock(engine)
        threads = torch.get_num_threads()
        torch.set_num_threads(
            1
        )  # on a shared machine a second thread mostly waits, and its waiting is not ours
        rows = {name: _row(engine, clock, Options(name, self.length)) for name in DECODERS}
        torch.set_num_threads(threads)
        return {"bench": self.name, "batch": 1, "length": self.length, "decoders": rows}


def _row(engine: Engine, clock: _Clock, options: Options) -> dict[str, float]:
    engine.generate([1, 2, 3, 4], options)  # warm up
    model_ms, beside_ms = [], []
    request = engine.submit([1, 2, 3, 4] * 16, options)
    while request.finish is None:
        clock.seconds = 0.0
        start = time.perf_counter()
        engine.tick()
        tick = time.perf_counter() - start
        model_ms.append(1e3 * clock.seconds)
        beside_ms.append(1e3 * (tick - clock.seconds))
    return {
        "steps": len(model_ms),
        "model_ms": round(statistics.median(model_ms), 3),
        "overhead_ms": round(statistics.median(beside_ms), 3),
    }


class _Clock:
    """Adds up the time spent inside the model's two methods."""

    def __init__(self, engine: Engine) -> None:
        self.seconds = 0.0
        model = engine.model
        model.hidden = self._timed(model.hidden)  # type: ignore[method-assign]
        model.logits = self._timed(model.logits)  # type: ignore[method-assign]

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            start = time.perf_counter()
            try:
                return method(*args)
            finally:
                self.seconds += time.perf_counter() - start

        return timed
