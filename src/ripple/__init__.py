"""Ripple: fast, faithful decoding for diffusion language models.

    import ripple
    engine = ripple.load("GSAI-ML/LLaDA-8B-Instruct")
    print(engine.generate("What is 7 * 8?", decoder="rps:lam=0.1", cache="dual").text)

Importing the package imports nothing else: each public name is imported at its first use, and only `load`,
`Engine` and what belongs to them import torch.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # typing.TYPE_CHECKING, without the cost of importing typing
if TYPE_CHECKING:
    from typing import Any

    from ripple import tasks as tasks
    from ripple.caches import (
        Cache,
        D2Cache,
        DkvCache,
        DualCache,
        ExactCache,
        NoCache,
        PrefixCache,
        SlideCache,
        cache,
    )
    from ripple.canvas import Canvas, Window
    from ripple.decoders import (
        EB,
        RPS,
        Confidence,
        Decoder,
        Default,
        Edit,
        Ete,
        Factor,
        Frechet,
        Glide,
        Klass,
        Learn2PD,
        Lopa,
        Wino,
        decoder,
    )
    from ripple.engine.engine import Engine
    from ripple.engine.load import load
    from ripple.engine.request import Request
    from ripple.engine.result import Result
    from ripple.engine.thread import EngineThread
    from ripple.errors import EngineStopped, QueueFull, RequestError, RippleError
    from ripple.look import Answer, Ask, Look, Wants
    from ripple.options import Options
    from ripple.trace import Event, read_trace, write_trace

__version__ = "0.2.0"

__all__ = [
    "EB", "RPS", "Answer", "Ask", "Cache", "Canvas", "Confidence", "D2Cache", "Decoder", "Default",
    "DkvCache", "DualCache", "Edit", "Engine", "EngineStopped", "EngineThread", "Ete", "Event", "ExactCache",
    "Factor", "Frechet", "Glide", "Klass", "Learn2PD", "Look", "Lopa", "NoCache", "Options", "PrefixCache",
    "QueueFull", "Request", "RequestError", "Result", "RippleError", "SlideCache", "Wants", "Window",
    "Wino", "cache", "decoder", "load", "read_trace", "write_trace",
]  # fmt: skip

_HOMES = {  # module -> the public names it holds
    "ripple.caches": "Cache D2Cache DkvCache DualCache ExactCache NoCache PrefixCache SlideCache cache",
    "ripple.canvas": "Canvas Window",
    "ripple.decoders": (
        "EB RPS Confidence Decoder Default Edit Ete Factor Frechet Glide Klass Learn2PD Lopa Wino decoder"
    ),
    "ripple.engine.engine": "Engine",
    "ripple.engine.load": "load",
    "ripple.engine.request": "Request",
    "ripple.engine.result": "Result",
    "ripple.engine.thread": "EngineThread",
    "ripple.errors": "EngineStopped QueueFull RequestError RippleError",
    "ripple.look": "Answer Ask Look Wants",
    "ripple.options": "Options",
    "ripple.tasks": "",
    "ripple.trace": "Event read_trace write_trace",
}


if not TYPE_CHECKING:  # for a type checker, a name that is not listed above is a mistake

    def __getattr__(name: str) -> Any:
        if f"ripple.{name}" in _HOMES:
            return importlib.import_module(f"ripple.{name}")
        for module, names in _HOMES.items():
            if name in names.split():
                return getattr(importlib.import_module(module), name)
        raise AttributeError(f"module 'ripple' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
