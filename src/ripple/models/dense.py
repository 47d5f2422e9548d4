"""The weights of dense Llama-like families, and which network runs them.

A family with this layout gives the released names of its tensors (`DenseNames`). q, k and v are stacked in
one matrix, gate and up in another, so that one product computes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

from ripple.models.base import ModelConfig

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MATRICES = ("qkv", "out", "gate_up", "down")  # of a layer
SCALE = "_scale"  # what follows a matrix's name in that of its scales
# Buffers that some checkpoints carry along; they follow from the config.
_ROTARY_BUFFERS = r"\.rotary_emb\.(inv_freq|pos_sin|pos_cos|\w+_cached)"


class DenseNames(NamedTuple):
    """The released names of a dense family's tensors."""

    embed: str
    norm: str
    head: str
    # role -> name, `{}` is the layer number; q, k and v without the ending .weight or .bias
    layer: Mapping[str, str]


@dataclass(slots=True)
class LayerWeights:
    """One block's tensors. Rows of fused matrices: q, then k, then v; gate, then up."""

    attn_norm: Tensor  # [d]
    qkv: Tensor  # [(n_heads + 2 n_kv_heads) * head_dim, d]
    qkv_bias: Tensor | None  # [(n_heads + 2 n_kv_heads) * head_dim]
    out: Tensor  # [d, n_heads * head_dim]
    mlp_norm: Tensor  # [d]
    gate_up: Tensor  # [2 * d_ff, d]
    down: Tensor  # [d, d_ff]
    q_norm: Tensor | None = None  # [head_dim]
    k_norm: Tensor | None = None  # [head_dim]


@dataclass(slots=True, kw_only=True)
class Fp8Layer(LayerWeights):
    """One block whose matrices are e4m3 numbers, each row to be multiplied by its scale, see fp8.py."""

    qkv_scale: Tensor  # [rows of the matrix, 1], fp32, as the others
    out_scale: Tensor
    gate_up_scale: Tensor
    down_scale: Tensor


@dataclass(slots=True)
class Weights:
    """All tensors of a dense model, on one device and in one dtype (fp8: all but the layers' matrices)."""

    embed: Tensor  # [vocab, d]
    layers: list[LayerWeights]
    norm: Tensor  # [d]
    head: Tensor  # [vocab, d]; the same tensor as `embed` when tied


def empty_weights(
    config: ModelConfig, names: DenseNames, device: torch.device, dtype: torch.dtype
) -> tuple[Weights, dict[str, Tensor]]:
    """Return uninitialised weights, and for every released tensor name the view of them that it fills.

    For fp8, whose dtype is that of e4m3 numbers, matrices get scales; everything else is bf16.
    """
    import torch

    is_fp8 = dtype == torch.float8_e4m3fn
    usual = torch.bfloat16 if is_fp8 else dtype

    def new(*shape: int, dtype: torch.dtype = usual) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    d, q_rows = config.d_model, config.n_heads * config.head_dim
    kv_rows = config.n_kv_heads * config.head_dim
    split = [q_rows, kv_rows, kv_rows]
    embed = new(config.vocab_size, d)
    places = {names.embed: embed}
    layers = []
    for number in range(config.n_layers):
        layer = LayerWeights(
            attn_norm=new(d),
            qkv=new(sum(split), d, dtype=dtype),
            qkv_bias=new(sum(split)) if config.qkv_bias else None,
            out=new(d, q_rows, dtype=dtype),
            mlp_norm=new(d),
            gate_up=new(2 * config.d_ff, d, dtype=dtype),
            down=new(d, config.d_ff, dtype=dtype),
        )
        if is_fp8:
            layer = _with_scales(layer)
        layers.append(layer)
        own = {role: name.format(number) for role, name in names.layer.items()}
        for role in ("attn_norm", "out", "mlp_norm", "down"):
            places[own[role]] = getattr(layer, role)
        for role, rows in zip("qkv", torch.split(layer.qkv, split), strict=True):
            places[own[role] + ".weight"] = rows
        if layer.qkv_bias is not None:
            for role, rows in zip("qkv", torch.split(layer.qkv_bias, split), strict=True):
                places[own[role] + ".bias"] = rows
        if config.qk_norm:
            places[own["q_norm"]] = layer.q_norm = new(config.head_dim)
            places[own["k_norm"]] = layer.k_norm = new(config.head_dim)
        places[own["gate"]], places[own["up"]] = torch.split(layer.gate_up, config.d_ff)
        if isinstance(layer, Fp8Layer):
            places |= _scale_places(layer, own, split)
    places[names.norm] = norm = new(d)
    head = embed
    if not config.tied_head:
        places[names.head] = head = new(config.vocab_size, d)
    return Weights(embed=embed, layers=layers, norm=norm, head=head), places


def _with_scales(layer: LayerWeights) -> Fp8Layer:
    """Return a layer whose matrices have scales, uninitialised."""
    import torch

    values = {field.name: getattr(layer, field.name) for field in fields(layer)}
    scales = {
        f"{role}_scale": torch.empty(len(values[role]), 1, dtype=torch.float32, device=layer.out.device)
        for role in MATRICES
    }
    return Fp8Layer(**values, **scales)


def _scale_places(layer: Fp8Layer, own: Mapping[str, str], split: list[int]) -> dict[str, Tensor]:
    """Return by name the scales of a layer's matrices."""
    import torch

    places = {own[role] + SCALE: getattr(layer, role + SCALE) for role in ("out", "down")}
    for role, rows in zip("qkv", torch.split(layer.qkv_scale, split), strict=True):
        places[own[role] + ".weight" + SCALE] = rows
    gate, up = torch.chunk(layer.gate_up_scale, 2)
    return places | {own["gate"] + SCALE: gate, own["up"] + SCALE: up}


def unread_names(names: DenseNames) -> re.Pattern[str]:
    """Return a pattern of tensors that a checkpoint may hold unread: a tied head's copy, rotary buffers."""
    return re.compile(rf"{re.escape(names.head)}$|.*{_ROTARY_BUFFERS}$")
