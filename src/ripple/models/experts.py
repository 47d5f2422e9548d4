"""Experts: which of them a row goes to, and what they add to it, in plain torch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ripple.models.base import ExpertsConfig
from ripple.models.dense import LayerWeights
from ripple.models.transformer import Transformer, rms_norm

Tensor = torch.Tensor


@dataclass(slots=True, kw_only=True)
class ExpertLayer(LayerWeights):
    """One block with experts; `gate_up` and `down` are the shared one's."""

    router: Tensor  # [experts, d], fp32
    router_bias: Tensor  # [experts], fp32
    expert_gate_up: Tensor  # [experts, 2 * expert_ff, d]
    expert_down: Tensor  # [experts, d, expert_ff]


def route(rows: Tensor, layer: ExpertLayer, config: ExpertsConfig) -> tuple[Tensor, Tensor]:
    """Return the experts of each row [n, n_chosen] and their weights, in fp32.

    The bias decides who is chosen and has no part in the weights.
    """
    score = F.linear(rows.float(), layer.router).sigmoid()  # [n, experts]
    choice = (score + layer.router_bias).view(len(rows), config.n_groups, -1)
    group_score = choice.topk(2, dim=-1).values.sum(-1)
    best = group_score.topk(config.n_groups_chosen, dim=-1).indices
    is_out = torch.ones_like(group_score, dtype=torch.bool).scatter(1, best, False)
    choice = choice.masked_fill(is_out[..., None], -torch.inf).flatten(1)
    chosen = choice.topk(config.n_chosen, dim=-1).indices
    weight = score.gather(1, chosen)
    return chosen, weight / (weight.sum(-1, keepdim=True) + 1e-20) * config.routed_scale


def routed(rows: Tensor, layer: ExpertLayer, config: ExpertsConfig) -> Tensor:
    """Return what the chosen experts add to rows [n, d], summed in fp32."""
    chosen, weight = route(rows, layer, config)
    out = rows.new_empty(*chosen.shape, rows.shape[1])
    for expert in chosen.unique().tolist():  # type: ignore[no-untyped-call]
        row, rank = torch.where(chosen == expert)
        gate, up = F.linear(rows[row], layer.expert_gate_up[expert]).chunk(2, dim=-1)
        out[row, rank] = F.linear(F.silu(gate) * up, layer.expert_down[expert])
    return (out.float() * weight[..., None]).sum(1).to(rows.dtype)


class ExpertTransformer(Transformer):
    """A transformer with experts, in plain torch."""

    config: ExpertsConfig

    def feed_forward(self, layer: LayerWeights, x: Tensor) -> Tensor:
        """Return what a layer's feed-forward part adds to x [S, T, d]."""
        normed = rms_norm(x, layer.mlp_norm, self.config.norm_eps)
        out = self.gated(layer, normed)
        if isinstance(layer, ExpertLayer):
            out = routed(normed.flatten(0, 1), layer, self.config).view_as(x) + out
        return out
