"""`ripple.load`: a checkpoint folder or hub id becomes an engine."""

from __future__ import annotations

from pathlib import Path

from ripple.engine.engine import Engine
from ripple.errors import RippleError
from ripple.models.hub import resolve
from ripple.models.load import load_model


def load(
    name_or_path: str | Path, *, device: str = "auto", dtype: str = "auto", fused: bool = True,
    max_batch: int = 64, queue_limit: int = 4096, memory_gb: float | None = None,
    block_size: int | None = None,
) -> Engine:  # fmt: skip
    """Load a model and return an engine that decodes with it.

    Args:
        name_or_path: an embedded model, a checkpoint folder in released format, or a hub id such as
            `GSAI-ML/LLaDA-8B-Instruct`.
        device: `cpu`, `cuda`, `cuda:N` or `auto`.
        dtype: `float32`, `bfloat16`, `float16`, `fp8` (Hopper and newer GPUs) or `auto` (bfloat16 on a
            GPU, float32 elsewhere; a checkpoint that is fp8 stays so).
        fused: multiply q, k, v (and gate, up) in one go; False reproduces the released code bit for bit.
        max_batch: how many requests take part in one tick.
        queue_limit: how many requests may wait beside them.
        memory_gb: budget for stored keys and KL histories; by default a share of the device's free memory.
        block_size: positions per block of a model that attends block by block, where its folder does not say.
    """
    if not isinstance(fused, bool):
        raise RippleError(f"fused must be true or false, got {fused!r}.")
    folder = resolve(name_or_path)
    model, tokenizer = load_model(folder, device, dtype, fused, block_size)
    return Engine(model, tokenizer, max_batch, queue_limit, memory_gb, folder)
