"""The two records that every other file of this room speaks in: what a model is, and its tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One dense, Llama-like, bidirectional model. The flags cover LLaDA, iLLaDA, Dream and their kin."""

    family: str  # "llada" | "dream": names of tensors and config fields
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int  # fewer than n_heads: grouped queries
    head_dim: int
    d_ff: int
    vocab_size: int  # rows of embedding and head, unused ones included
    norm_eps: float
    rope_theta: float
    rope_fp32: bool  # True: rotate in fp32 and cast back (LLaDA); False: in the activation dtype (Dream)
    qkv_bias: bool
    tied_head: bool  # the head is the embedding
    logit_shift: int  # 0: row i predicts token i (LLaDA); 1: row i predicts token i + 1 (Dream)
    mask_id: int
    end_ids: tuple[int, ...]  # tokens that end a response, the one that fills the canvas first
    max_positions: int


@dataclass(slots=True)
class LayerWeights:
    """One block's tensors. Rows of fused matrices: q, then k, then v; gate, then up."""

    attn_norm: torch.Tensor  # [d]
    qkv: torch.Tensor  # [(n_heads + 2 n_kv_heads) * head_dim, d]
    qkv_bias: torch.Tensor | None  # [(n_heads + 2 n_kv_heads) * head_dim]
    out: torch.Tensor  # [d, n_heads * head_dim]
    mlp_norm: torch.Tensor  # [d]
    gate_up: torch.Tensor  # [2 * d_ff, d]
    down: torch.Tensor  # [d, d_ff]


@dataclass(slots=True)
class Weights:
    """All tensors of a model, on one device and in one dtype."""

    embed: torch.Tensor  # [vocab, d]
    layers: list[LayerWeights]
    norm: torch.Tensor  # [d]
    head: torch.Tensor  # [vocab, d]; the same tensor as `embed` when tied
