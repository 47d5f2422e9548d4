"""From a name or a folder to a model that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ripple.errors import RippleError, unknown
from ripple.models.base import Model, ModelConfig
from ripple.models.checkpoint import read_weights
from ripple.models.config import read_config
from ripple.models.families import FAMILIES
from ripple.models.fp8 import FP8, check_fp8
from ripple.models.hub import resolve
from ripple.models.quantization import is_fp8_checkpoint
from ripple.tokenizer import Tokenizer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "fp8": FP8}


def load_model(
    name_or_path: str | Path, device: str = "auto", dtype: str = "auto", fused: bool = True,
    block_size: int | None = None,
) -> tuple[Model, Tokenizer | None]:  # fmt: skip
    """Load a folder or hub id; `auto` is the GPU in bfloat16 if there is one, else the CPU in float32.

    An fp8 checkpoint is fp8 by itself.
    """
    folder = resolve(name_or_path)
    target = torch_device(device)
    config = read_config(folder, block_size)
    if dtype == "auto":
        usual = "bfloat16" if target.type == "cuda" else "float32"
        dtype = "fp8" if is_fp8_checkpoint(folder) else usual
    if dtype == "fp8" and not fused:
        raise RippleError("fused=False reproduces the released code bit for bit, which fp8 cannot.")
    weights = read_weights(folder, config, target, torch_dtype(dtype, target))
    tokenizer = Tokenizer.load(folder, FAMILIES[config.family].tokenizer_class)
    return network(config, weights, fused), tokenizer


def network(config: ModelConfig, weights: Any, fused: bool = True) -> Model:
    """Return the network that runs these weights, which lie as the config's family lays them out."""
    return FAMILIES[config.family].network(config, weights, fused)


def torch_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the dtype of matrices that `--dtype` calls so, or say why a device has none of it."""
    if name not in DTYPES:
        raise unknown("dtype", name, DTYPES)
    if DTYPES[name] == FP8:
        check_fp8(device)
    return DTYPES[name]


def dtype_name(model: Model) -> str:
    """Return a model's dtype as `--dtype` spells it."""
    dtype = getattr(model, "matrix_dtype", model.dtype)  # a network of one dtype need not say so twice
    return next(name for name, one in DTYPES.items() if one == dtype)


def torch_device(name: str) -> torch.device:
    """Return the device of that name, or say why not; a numbered GPU becomes the current one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda", "mps"):
            raise RuntimeError("a device that nothing here runs on")
    except (RuntimeError, TypeError):
        raise RippleError(f"Unknown device {name!r}; use cpu, cuda, cuda:N or auto.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RippleError(f"Device {name!r} was asked for, but this machine has no usable CUDA GPU.")
    if device.type == "cuda" and device.index is not None:
        if device.index >= torch.cuda.device_count():
            raise RippleError(
                f"Device {name!r} was asked for, but the last one is cuda:{torch.cuda.device_count() - 1}."
            )
        torch.cuda.set_device(device)  # kernels of our own run on the current device
    return device
