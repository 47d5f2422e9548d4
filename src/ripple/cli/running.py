"""Loading a model for a subcommand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ripple.cli.console import remark
from ripple.cli.options import load_arguments

if TYPE_CHECKING:
    from ripple.engine.engine import Engine

DEFAULT_MODEL = "tiny-llada"
# A problem that both embedded models solve with every decoder, for whoever looks for something to try.
EXAMPLE = (
    "Question: Kira buys 7 mugs at 11 dollars each and 8 rulers at 15 dollars each."
    " How many dollars is that in all?"
)


@contextmanager
def open_engine(table: Mapping[str, Any], is_quiet: bool = False, **sizes: Any) -> Iterator[Engine]:
    """Load the model that was asked for, or the embedded one, which is said on stderr.

    `sizes` are `max_batch` and `queue_limit` of the engine.
    """
    import torch

    from ripple.engine.load import load
    from ripple.models.hub import embedded_models

    model, where = table.get("model"), load_arguments(table)
    if model is None and not is_quiet:
        remark(
            f"no --model was given: this is the embedded {DEFAULT_MODEL}, which solves only problems like "
            f"those of `ripple tasks`, such as '{EXAMPLE}'"
        )
    n_threads = torch.get_num_threads()
    if model is None or model in embedded_models():
        torch.set_num_threads(1)  # the model is too small to share, and waiting for a busy core costs more
    try:
        yield load(model or DEFAULT_MODEL, **where, **sizes)
    finally:
        torch.set_num_threads(n_threads)
