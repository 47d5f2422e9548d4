"""Attention of live rows and of isolated branches in plain torch, under a dense mask.

This is what the CPU runs, and what the GPU kernel (attention_kernel.py), which needs no mask, is held to.

Shapes: S canvases, H query heads, K key heads, R live rows, G branches of W rows, N keys, D head_dim.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ripple.models.forward import Forward

Tensor = torch.Tensor


@dataclass(slots=True)
class Visibility:
    """Which keys which rows see; built once per forward, used by every layer."""

    keys: Tensor | None  # [S, 1, 1, N] live rows; None: all keys
    branches: Tensor | None  # [S, 1, G * W, N + G * W] branch rows, canvas keys first; None: no branches


def visibility(fwd: Forward) -> Visibility:
    """Derive the masks of a forward on its device."""
    key_index = torch.arange(fwd.n_keys, device=fwd.ids.device)
    keys = None if fwd.key_len is None else (key_index < fwd.key_len[:, None])[:, None, None]
    if fwd.hidden is None:
        return Visibility(keys, None)
    lo, hi = fwd.hidden[:, None, :, 0, None], fwd.hidden[:, None, :, 1, None]  # [S, 1, G * W, 1]
    shared = (key_index < lo) | (key_index >= hi)
    if keys is not None:
        shared &= keys
    n_rows, n_branch_rows, w = shared.shape[0], shared.shape[2], fwd.branch_len
    branch_of = torch.arange(n_branch_rows, device=fwd.ids.device) // w
    siblings = (branch_of[:, None] == branch_of)[None, None].expand(n_rows, 1, -1, -1)
    if fwd.own_len is not None:
        exists = torch.arange(w, device=fwd.ids.device) < fwd.own_len[:, :, None]  # [S, G, W]
        siblings = siblings & exists.reshape(n_rows, 1, 1, n_branch_rows)
    return Visibility(keys, torch.cat([shared, siblings], dim=-1))


def attend_live(q: Tensor, k: Tensor, v: Tensor, seen: Visibility) -> Tensor:
    """Attend [S, H, R, D] queries to all keys of their canvas."""
    if seen.keys is None:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1])
    return _unfold(F.scaled_dot_product_attention(_fold(q, k), k, v, attn_mask=seen.keys), q)


def attend_branches(
    q: Tensor, k: Tensor, v: Tensor, k_own: Tensor, v_own: Tensor, seen: Visibility
) -> Tensor:
    """Attend [S, H, G * W, D] branch queries to the canvas's keys and to their own branch."""
    assert seen.branches is not None
    folded = _fold(q, k)
    mask = seen.branches.repeat(1, 1, folded.shape[2] // q.shape[2], 1)
    keys, values = torch.cat([k, k_own], dim=2), torch.cat([v, v_own], dim=2)
    return _unfold(F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask), q)


def _fold(q: Tensor, k: Tensor) -> Tensor:
    """Turn grouped query heads into more rows of their key head: [S, H, R, D] -> [S, K, (H / K) * R, D]."""
    return q if q.shape[1] == k.shape[1] else q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])


def _unfold(out: Tensor, q: Tensor) -> Tensor:
    return out.reshape(q.shape)
