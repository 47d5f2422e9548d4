"""The shapes of the released large models, and networks of those shapes with random weights.

What a forward costs does not depend on what the weights are, so speed can be measured without a download.
"""

from __future__ import annotations

import dataclasses

import torch

from ripple.errors import unknown
from ripple.models.base import Model, ModelConfig
from ripple.models.dense import SCALE
from ripple.models.families import FAMILIES
from ripple.models.fp8 import FP8, check_layout, fill_quantised

SHAPES = {name: shape for family in FAMILIES.values() for name, shape in family.shapes.items()}


def shape_named(name: str, n_layers: int | None = None) -> ModelConfig:
    """Return a released shape, with fewer layers if asked."""
    if name not in SHAPES:
        raise unknown("model shape", name, SHAPES)
    return SHAPES[name] if n_layers is None else dataclasses.replace(SHAPES[name], n_layers=n_layers)


@torch.inference_mode()
def random_network(config: ModelConfig, device: torch.device, dtype: torch.dtype, seed: int = 0) -> Model:
    """Return a network with random weights, drawn on the device; states keep about unit variance.

    With the dtype of e4m3 numbers it is an fp8 network: what the bf16 one of the same seed becomes.
    """
    family = FAMILIES[config.family]
    weights, tensors = family.empty_weights(config, device, dtype)
    if dtype == FP8:
        check_layout(config.family, tensors)
    generator = torch.Generator(device).manual_seed(seed)
    for name, tensor in tensors.items():
        if name.endswith(SCALE):  # comes with its matrix
            continue
        if tensor.dim() == 1:
            tensor.fill_(0.0 if name.endswith("bias") else 1.0)
            continue
        scale = 1.0 if name == family.format.embed else tensor.shape[1] ** -0.5
        if tensor.dtype == FP8:
            drawn = torch.empty(tensor.shape, device=device, dtype=torch.bfloat16)
            fill_quantised(name, tensors, drawn.normal_(0.0, scale, generator=generator))
        else:
            tensor.normal_(0.0, scale, generator=generator)
    return family.network(config, weights, True)
