"""The shapes of the released large models, and networks of those shapes with random weights.

What a forward costs does not depend on what the weights are, so speed can be measured without a download.
"""

from __future__ import annotations

import dataclasses

import torch

from ripple.errors import unknown
from ripple.models.checkpoint import empty_weights
from ripple.models.load import network
from ripple.models.records import ModelConfig
from ripple.models.transformer import Transformer

SHAPES = {
    "llada-8b": ModelConfig(
        family="llada", d_model=4096, n_layers=32, n_heads=32, n_kv_heads=32, head_dim=128, d_ff=12288,
        vocab_size=126464, norm_eps=1e-5, rope_theta=500000.0, rope_fp32=True, qkv_bias=False,
        tied_head=False, logit_shift=0, mask_id=126336, end_ids=(126081, 126348), max_positions=8192,
    ),
    "dream-7b": ModelConfig(
        family="dream", d_model=3584, n_layers=28, n_heads=28, n_kv_heads=4, head_dim=128, d_ff=18944,
        vocab_size=152064, norm_eps=1e-6, rope_theta=1000000.0, rope_fp32=False, qkv_bias=True,
        tied_head=False, logit_shift=1, mask_id=151666, end_ids=(151643,), max_positions=8192,
    ),
}  # fmt: skip


def shape_named(name: str, n_layers: int | None = None) -> ModelConfig:
    """Return a released shape, with fewer layers if asked."""
    if name not in SHAPES:
        raise unknown("model shape", name, SHAPES)
    return SHAPES[name] if n_layers is None else dataclasses.replace(SHAPES[name], n_layers=n_layers)


@torch.inference_mode()
def random_network(
    config: ModelConfig, device: torch.device, dtype: torch.dtype, seed: int = 0
) -> Transformer:
    """Return a network with random weights, drawn on the device; states keep about unit variance."""
    weights, tensors = empty_weights(config, device, dtype)
    generator = torch.Generator(device).manual_seed(seed)
    for name, tensor in tensors.items():
        if tensor.dim() == 1:
            tensor.fill_(0.0 if name.endswith("bias") else 1.0)
            continue
        scale = 1.0 if tensor is weights.embed else tensor.shape[1] ** -0.5
        tensor.normal_(0.0, scale, generator=generator)
    return network(config, weights)
