"""Rotary positions: the frequencies of a family, their tables, and queries that grow with their position."""

from __future__ import annotations

import math

import torch

from ripple.models.base import ModelConfig, Yarn

Tensor = torch.Tensor


def rotary_tables(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cos and sin [positions, rotary_dim], computed in fp32; both halves of a row are alike."""
    n = max(config.max_positions, 1)
    angle = torch.arange(n).float()[:, None] * inverse_frequencies(config)
    angle = torch.cat([angle, angle], dim=-1).to(device)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def inverse_frequencies(config: ModelConfig) -> Tensor:
    """Return the radians per position [rotary_dim / 2] of every pair."""
    d = config.rotary_dim or config.head_dim
    half = torch.arange(0, d, 2, dtype=torch.int64).float() / d
    inverse = 1.0 / (config.rope_theta**half)
    return inverse if config.yarn is None else _stretched(inverse, config.rope_theta, config.yarn)


def _stretched(inverse: Tensor, theta: float, yarn: Yarn) -> Tensor:
    """Return YaRN's frequencies: pairs that turn often stay, slow ones are divided, a ramp lies between."""
    n_pairs = len(inverse)

    def pair_that_turns(times: float) -> float:
        """Return the number of the pair that turns so often over the first training's positions."""
        return n_pairs * math.log(yarn.n_positions / (times * 2 * math.pi)) / math.log(theta)

    first = max(math.floor(pair_that_turns(yarn.beta_fast)), 0)
    last = min(math.ceil(pair_that_turns(yarn.beta_slow)), 2 * n_pairs - 1)
    width = last - first or 0.001
    divided = ((torch.arange(n_pairs, dtype=torch.float32) - first) / width).clamp(0, 1)
    return inverse / yarn.factor * divided + inverse * (1 - divided)


def query_scales(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Tensor | None:
    """Return what queries are multiplied by [positions] after their rotation; None: by nothing."""
    if config.query_scale is None:
        return None
    pos = torch.arange(max(config.max_positions, 1))
    steps = torch.floor(pos / config.query_scale.n_positions)
    return (1 + config.query_scale.beta * torch.log(1 + steps)).to(device, dtype)
