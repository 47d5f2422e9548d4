"""The network with experts and GPU kernels: as fast.py, but for what the feed-forward part adds."""

from __future__ import annotations

import torch

from ripple.models.base import ExpertsConfig
from ripple.models.dense import LayerWeights
from ripple.models.experts import ExpertLayer, ExpertTransformer, route
from ripple.models.gpu.experts_kernel import routed, sorted_pairs
from ripple.models.gpu.fast import FastTransformer, Normed, Parts

Tensor = torch.Tensor


class FastExpertTransformer(FastTransformer, ExpertTransformer):
    """A transformer with experts on a GPU."""

    config: ExpertsConfig

    def feed_forward_parts(self, x: Tensor, layer: LayerWeights, normed: Normed) -> Parts:
        """Return the shared expert's parts and those of the chosen ones."""
        parts = super().feed_forward_parts(x, layer, normed)
        if not isinstance(layer, ExpertLayer):
            return parts
        chosen, weight = route(normed, layer, self.config)
        pairs = sorted_pairs(chosen, weight, self.config.n_experts)
        out = routed(normed, pairs, layer.expert_gate_up, layer.expert_down)[None]
        return out if parts is None else torch.cat([parts, out])
