"""fp8: matrices as e4m3 numbers with a scale for each output channel, activations with one for each row.

    y[r, n] = row_scale[r] * channel_scale[n] * sum over k of x[r, k] * w[n, k]     x, w: e4m3; the rest: fp32

A scale maps the largest of its row to 448, the largest e4m3 number. Matrices are quantised once, activations
in every product. Embedding, head, norms and biases keep the dtype of the activations, which is bf16.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F

from ripple.errors import RippleError
from ripple.models.dense import SCALE, Fp8Layer, LayerWeights, Weights
from ripple.models.transformer import Transformer

Tensor = torch.Tensor
FP8 = torch.float8_e4m3fn
LARGEST = 448.0
LEAST = 1e-12  # so that a row of zeros has a scale
CAPABILITY = (9, 0)  # Hopper; what the kernels were made for and measured on


def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return x [..., n, k] as e4m3 numbers, and what each row is to be multiplied by, fp32 [..., n, 1]."""
    x = x.float()
    largest = x.abs().amax(-1, keepdim=True).clamp(min=LEAST)
    inverse = torch.full_like(largest, LARGEST) / largest  # a number over a tensor would be rounded twice
    return (x * inverse).to(FP8), largest * (1 / LARGEST)


def dequantised(x: Tensor, scale: Tensor) -> Tensor:
    """Return what e4m3 numbers stand for, in fp32."""
    return x.float() * scale


def fill_quantised(name: str, places: Mapping[str, Tensor], values: Tensor, first: int = 0) -> None:
    """Quantise values [n, k] into the rows of a matrix from `first` on, and their scales into its scale."""
    rows = slice(first, first + len(values))
    numbers, scale = quantised(values)
    places[name][rows].copy_(numbers)
    places[name + SCALE][rows].copy_(scale)


def with_activations(weights: Weights, dtype: torch.dtype) -> Weights:
    """Return fp8 weights for activations of another dtype than bf16: in fp32 nothing but fp8 rounds."""

    def changed(part: Any) -> dict[str, Any]:
        values = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
        is_usual = {name: isinstance(v, Tensor) and v.dtype == torch.bfloat16 for name, v in values.items()}
        return {name: values[name].to(dtype) for name in values if is_usual[name]}

    layers = [dataclasses.replace(layer, **changed(layer)) for layer in weights.layers]
    return dataclasses.replace(weights, **changed(weights), layers=layers)


def has_fp8(device: torch.device) -> bool:
    """Say whether fp8 networks run on a device."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= CAPABILITY


def check_fp8(device: torch.device) -> None:
    """Raise where they do not."""
    if not has_fp8(device):
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        raise RippleError(f"fp8 needs an NVIDIA GPU, Hopper or newer, and the device is {name}.")


def check_layout(family: str, places: Mapping[str, Tensor]) -> None:
    """Raise where a family's layout has no scales."""
    if not any(name.endswith(SCALE) for name in places):
        raise RippleError(f"fp8 is for dense models, but those of the family {family} have experts.")


class Fp8Transformer(Transformer):
    """The network in plain torch: rounds matrices and activations as fp8 does, and multiplies in fp32.

    This is what the GPU path (gpu/fast_fp8.py) is held to.
    """

    def product(self, layer: LayerWeights, name: str, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return x @ W.T + bias for one of a layer's matrices."""
        assert isinstance(layer, Fp8Layer)
        matrix = dequantised(getattr(layer, name), getattr(layer, name + SCALE))
        out = F.linear(dequantised(*quantised(x)), matrix)
        return (out if bias is None else out + bias.float()).to(x.dtype)
