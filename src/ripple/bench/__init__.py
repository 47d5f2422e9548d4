"""Measurements of the engine itself; `ripple bench` lists them.

Those of decoders on tasks are in `ripple.eval`.
"""

from __future__ import annotations

MEASUREMENTS = {  # name -> module and class
    "overhead": "ripple.bench.overhead:Overhead",
    "load-memory": "ripple.bench.load_memory:LoadMemory",
    "packing": "ripple.bench.packing:Packing",
    "step": "ripple.bench.step:StepTime",
    "tiles": "ripple.bench.tiles:Tiles",
    "replay": "ripple.bench.replay:ReplaySpeed",
    "throughput": "ripple.bench.throughput:Throughput",
    "serve": "ripple.bench.serve:Serve",
    "soak": "ripple.bench.soak:Soak",
    "scale": "ripple.bench.scale:Scale",
}
