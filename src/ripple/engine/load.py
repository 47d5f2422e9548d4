"""`ripple.load`: a checkpoint folder or hub id becomes an engine."""

from __future__ import annotations

from pathlib import Path

from ripple.engine.engine import Engine
from ripple.models.load import load_model


def load(
    name_or_path: str | Path, *, device: str = "auto", dtype: str = "auto", fused: bool = True,
    max_batch: int = 64, queue_limit: int = 4096,
) -> Engine:  # fmt: skip
    """Load a model and return an engine that decodes with it.

    Args:
        name_or_path: a checkpoint folder in released format, or a hub id such as `GSAI-ML/LLaDA-8B-Instruct`.
        device: `cpu`, `cuda`, `cuda:N` or `auto`.
        dtype: `float32`, `bfloat16`, `float16` or `auto` (bfloat16 on a GPU, float32 elsewhere).
        fused: multiply q, k, v (and gate, up) in one go; False reproduces the released code bit for bit.
        max_batch: how many requests take part in one tick.
        queue_limit: how many requests may wait beside them.
    """
    model, text = load_model(name_or_path, device, dtype, fused)
    return Engine(model, text, max_batch, queue_limit)
