"""From a name or a folder to a model that runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

from ripple.errors import RippleError, unknown
from ripple.models.checkpoint import read_weights
from ripple.models.config import read_config
from ripple.models.hub import resolve
from ripple.models.records import ModelConfig, Weights
from ripple.models.transformer import Transformer
from ripple.text import Text

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_model(
    name_or_path: str | Path, device: str = "auto", dtype: str = "auto", fused: bool = True
) -> tuple[Transformer, Text | None]:
    """Load a folder or hub id; `auto` is the GPU in bfloat16 if there is one, else the CPU in float32."""
    folder = resolve(name_or_path)
    target = torch_device(device)
    config = read_config(folder)
    if dtype == "auto":
        dtype = "bfloat16" if target.type == "cuda" else "float32"
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    weights = read_weights(folder, config, target, DTYPES[dtype])
    return network(config, weights, fused), Text.load(folder, config)


def network(config: ModelConfig, weights: Weights, fused: bool = True) -> Transformer:
    """Return the network for these weights: with GPU kernels where they lie on a GPU and Triton is there."""
    whole_tiles = config.head_dim >= 16 and config.head_dim.bit_count() == 1
    on_gpu = weights.embed.device.type == "cuda"
    if on_gpu and fused and whole_tiles and importlib.util.find_spec("triton"):
        from ripple.models.fast import FastTransformer

        return FastTransformer(config, weights)
    return Transformer(config, weights, fused)


def torch_device(name: str) -> torch.device:
    """Return the device of that name, or say why not; a numbered GPU becomes the current one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
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
