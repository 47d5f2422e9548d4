"""Ripple: fast, faithful decoding for diffusion language models.

    import ripple
    engine = ripple.load("GSAI-ML/LLaDA-8B-Instruct")
    print(engine.generate("What is 7 * 8?", decoder=ripple.RPS(lam=0.1), cache="dual").text)

Importing the package does not import torch; `load` and `Engine` do, on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ripple.caches import D2Cache, DkvCache, DualCache, NoCache, PrefixCache
from ripple.canvas import Canvas, Window
from ripple.decoders import (
    EB,
    RPS,
    Confidence,
    Decoder,
    Default,
    Ete,
    Factor,
    Frechet,
    Klass,
    Learn2PD,
    Lopa,
    Wino,
    decoder,
)
from ripple.engine.result import Result, Settings
from ripple.errors import QueueFull, RippleError
from ripple.look import Answer, Ask, Look, Wants
from ripple.trace import Event, read_trace, write_trace

if TYPE_CHECKING:
    from ripple.engine.engine import Engine
    from ripple.engine.load import load

__version__ = "0.1.0"

__all__ = [
    "EB", "RPS", "Answer", "Ask", "Canvas", "Confidence", "D2Cache", "Decoder", "Default", "DkvCache",
    "DualCache", "Engine", "Ete", "Event", "Factor", "Frechet", "Klass", "Learn2PD", "Look", "Lopa",
    "NoCache", "PrefixCache", "QueueFull", "Result", "RippleError", "Settings", "Wants", "Window", "Wino",
    "decoder", "load", "read_trace", "write_trace",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "load":
        from ripple.engine.load import load

        return load
    if name == "Engine":
        from ripple.engine.engine import Engine

        return Engine
    raise AttributeError(f"module 'ripple' has no attribute {name!r}")
