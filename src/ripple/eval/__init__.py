"""Models on tasks: one runner, its result lines, and everything that is made with them."""

from __future__ import annotations

MEASUREMENTS = {  # name -> module and class; `ripple bench` lists them
    "decoders": "ripple.eval.decoders:Decoders",
    "blame": "ripple.eval.blame:Blame",
    "concurrency": "ripple.eval.concurrency:Concurrency",
    "fp8": "ripple.eval.fp8:Fp8",
    "schedules": "ripple.eval.schedules:Schedules",
}
