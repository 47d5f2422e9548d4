"""Loading a model for a subcommand, and decoding one prompt on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ripple.cli.console import remark
from ripple.decoders import Default
from ripple.engine.result import Result, Settings
from ripple.trace import Event

if TYPE_CHECKING:
    from ripple.engine.engine import Engine
    from ripple.engine.prompts import Prompt

Hear = Callable[[list[Event]], None]


def default_model() -> str:
    """Return the embedded model that is used when none is named."""
    return "tiny-llada"


@contextmanager
def open_engine(table: Mapping[str, Any], say: bool = True) -> Iterator[Engine]:
    """Load the model that was asked for, or the embedded one, which is said on stderr."""
    import torch

    from ripple.engine.load import load

    where = {name: table[name] for name in ("device", "dtype") if name in table}
    model = table.get("model")
    if model is not None:
        yield load(model, **where)
        return
    if say:
        remark(
            f"no --model was given: this is the embedded {default_model()}, "
            "which knows only the problems of `ripple tasks`."
        )
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the model is too small to share, and waiting for a busy core costs more
    try:
        yield load(default_model(), **where)
    finally:
        torch.set_num_threads(n_threads)


def decode(engine: Engine, prompt: Prompt, settings: Settings, hear: Hear | None = None) -> Result:
    """Decode one prompt; `hear` gets the new events after every forward (with `settings.trace`)."""
    session = engine.submit(prompt, settings)
    n_told = 0
    try:
        while session.finish is None:
            engine.tick()
            if hear is not None:
                hear(session.events[n_told:])
                n_told = len(session.events)
    finally:
        session.cancel()
    return session.result()


def warm_up(engine: Engine, prompt: Prompt, settings: Settings) -> None:
    """Run one forward over the whole canvas, so that the first decoder timed does not pay for the start."""
    length = settings.length
    decode(engine, prompt, Settings(decoder=Default(k=length), length=length, block=length))
