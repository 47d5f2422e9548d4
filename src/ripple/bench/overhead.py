"""What the engine adds to a bare forward at batch 1: planning, statistics, the decoder, bookkeeping.

Run: `ripple bench overhead`. Times are medians over one run's ticks; the model's own time (body and head) is
taken out of each tick, so the machine's speed matters little and its noise cancels.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ripple.decoders import decoder
from ripple.engine.engine import Engine
from ripple.engine.load import load
from ripple.engine.result import Settings
from ripple.models.random import write_random_checkpoint

DECODERS = ("default", "confidence", "klass", "eb", "wino", "lopa", "rps")


def measure(folder: Path | None = None, length: int = 128) -> dict[str, Any]:
    """Return, per decoder, milliseconds per step inside the model and beside it."""
    if folder is not None:
        return _measure(load(folder, device="cpu", dtype="float32"), length)
    with tempfile.TemporaryDirectory() as scratch:
        written = write_random_checkpoint(
            Path(scratch), family="llada", vocab_size=2048, d_model=128, n_layers=4
        )
        return _measure(load(written, device="cpu", dtype="float32"), length)


def _measure(engine: Engine, length: int) -> dict[str, Any]:
    clock = _Clock()
    clock.watch(engine)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a shared machine a second thread mostly waits, and its waiting is not ours
    rows = {}
    for name in DECODERS:
        settings = Settings(decoder(name), length=length, block=32)
        engine.generate([1, 2, 3, 4], decoder=settings.decoder, length=32)  # warm up
        model_ms, beside_ms = [], []
        session = engine.submit([1, 2, 3, 4] * 16, settings)
        while session.finish is None:
            clock.seconds = 0.0
            start = time.perf_counter()
            engine.tick()
            tick = time.perf_counter() - start
            model_ms.append(1e3 * clock.seconds)
            beside_ms.append(1e3 * (tick - clock.seconds))
        rows[name] = {
            "steps": len(model_ms),
            "model_ms": round(statistics.median(model_ms), 3),
            "overhead_ms": round(statistics.median(beside_ms), 3),
        }
    torch.set_num_threads(threads)
    return {"bench": "overhead", "batch": 1, "length": length, "decoders": rows}


class _Clock:
    """Adds up the time spent inside the model's two methods."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def watch(self, engine: Engine) -> None:
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
