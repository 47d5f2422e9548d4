"""Attention of live rows and of isolated branches in plain torch, under a dense mask.

This is what the CPU runs, and what the GPU kernel (gpu/attention_kernel.py), which needs no mask, is held to.

Shapes: S canvases, H query heads, K key heads, R live rows, G branches of W rows, N keys, D head_dim.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ripple.models.base import ForwardInputs

Tensor = torch.Tensor


@dataclass(slots=True)
class Masks:
    """Which keys which rows see; built once per forward, used by every layer."""

    live: Tensor | None  # [S, 1, 1 or R, N]; None: all keys
    branches: Tensor | None  # [S, 1, G * W, N + G * W] branch rows, canvas keys first; None: no branches


def attention_masks(inputs: ForwardInputs) -> Masks:
    """Derive the masks of a forward on its device."""
    key_index = torch.arange(inputs.n_keys, device=inputs.ids.device)
    live = None if inputs.key_len is None else (key_index < inputs.key_len[:, None])[:, None, None]
    below = None if inputs.limit is None else (key_index < inputs.limit[..., None])[:, None]  # [S, 1, T, N]
    if below is not None:
        below = below if live is None else below & live
        live = below[:, :, : inputs.n_live]
    if inputs.hide is None:
        return Masks(live, None)
    lo, hi = inputs.hide[:, None, :, 0, None], inputs.hide[:, None, :, 1, None]  # [S, 1, G * W, 1]
    canvas = (key_index < lo) | (key_index >= hi)
    if inputs.hidden is not None:
        canvas &= (inputs.hidden == 0)[:, None, None]
    if below is not None:
        canvas &= below[:, :, inputs.n_live :]
    elif live is not None:
        canvas &= live
    n_canvases, n_branch_rows, w = canvas.shape[0], canvas.shape[2], inputs.branch_len
    branch_of = torch.arange(n_branch_rows, device=inputs.ids.device) // w
    own = (branch_of[:, None] == branch_of)[None, None].expand(n_canvases, 1, -1, -1)
    if inputs.own_len is not None:
        exists = torch.arange(w, device=inputs.ids.device) < inputs.own_len[:, :, None]  # [S, G, W]
        own = own & exists.reshape(n_canvases, 1, 1, n_branch_rows)
    return Masks(live, torch.cat([canvas, own], dim=-1))


def attend_live(q: Tensor, k: Tensor, v: Tensor, masks: Masks) -> Tensor:
    """Attend [S, H, R, D] queries to the keys of their canvas."""
    if masks.live is None:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1])
    return _masked(q, k, v, masks.live)


def attend_branches(q: Tensor, k: Tensor, v: Tensor, k_own: Tensor, v_own: Tensor, masks: Masks) -> Tensor:
    """Attend [S, H, G * W, D] branch queries to the canvas's keys and to their own branch."""
    assert masks.branches is not None
    return _masked(q, torch.cat([k, k_own], dim=2), torch.cat([v, v_own], dim=2), masks.branches)


def _masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attend under a mask [S, 1, 1 or rows, keys]; grouped query heads become more rows of their key head."""
    n_canvases, n_heads, n_rows, d = q.shape
    group = n_heads // k.shape[1]
    if group > 1:
        q = q.reshape(n_canvases, k.shape[1], group * n_rows, d)
    if mask.shape[2] > 1:
        mask = mask.repeat(1, 1, group, 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).reshape(n_canvases, n_heads, n_rows, d)
