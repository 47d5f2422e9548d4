"""Attention of live rows and of isolated branches, in two equal ways.

`masked` runs the branches in one call under a dense boolean mask. `split` needs no mask between branches: all
branch rows meet the shared keys in one call, each branch meets itself in a batched call, and the two
partial results are merged by their log-sum-exps. Tests hold both against a plain dense reference.

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
    shared: Tensor | None  # [S, 1, G * W, N] branch rows on the canvas's keys; None: no branches
    own: Tensor | None  # [S * G, 1, 1, W] rows that exist inside each branch; None: all
    dense: Tensor | None  # [S, 1, G * W, N + G * W] both at once, for `masked`


def visibility(fwd: Forward, split: bool) -> Visibility:
    """Derive the masks of a forward on its device."""
    key_index = torch.arange(fwd.n_keys, device=fwd.ids.device)
    keys = None if fwd.key_len is None else (key_index < fwd.key_len[:, None])[:, None, None]
    if fwd.hidden is None:
        return Visibility(keys, None, None, None)
    lo, hi = fwd.hidden[:, None, :, 0, None], fwd.hidden[:, None, :, 1, None]  # [S, 1, G * W, 1]
    shared = (key_index < lo) | (key_index >= hi)
    if keys is not None:
        shared &= keys
    n_rows, n_branch_rows, w = shared.shape[0], shared.shape[2], fwd.branch_len
    row_index = torch.arange(w, device=fwd.ids.device)
    own = None if fwd.own_len is None else row_index < fwd.own_len[:, :, None]  # [S, G, W]
    if split:
        return Visibility(keys, shared, None if own is None else own.reshape(-1, 1, 1, w), None)
    branch_of = torch.arange(n_branch_rows, device=fwd.ids.device) // w
    siblings = (branch_of[:, None] == branch_of)[None, None].expand(n_rows, 1, -1, -1)
    if own is not None:
        siblings = siblings & own.reshape(n_rows, 1, 1, n_branch_rows)
    return Visibility(keys, None, None, torch.cat([shared, siblings], dim=-1))


def attend_live(q: Tensor, k: Tensor, v: Tensor, seen: Visibility) -> Tensor:
    """Attend [S, H, R, D] queries to all keys of their canvas."""
    if seen.keys is None:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1])
    return _unfold(F.scaled_dot_product_attention(_fold(q, k), k, v, attn_mask=seen.keys), q)


def attend_branches_masked(
    q: Tensor, k: Tensor, v: Tensor, k_own: Tensor, v_own: Tensor, seen: Visibility
) -> Tensor:
    """Attend [S, H, G * W, D] branch queries under the dense mask."""
    assert seen.dense is not None
    folded = _fold(q, k)
    mask = seen.dense.repeat(1, 1, folded.shape[2] // q.shape[2], 1)
    keys, values = torch.cat([k, k_own], dim=2), torch.cat([v, v_own], dim=2)
    return _unfold(F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask), q)


def attend_branches_split(
    q: Tensor, k: Tensor, v: Tensor, k_own: Tensor, v_own: Tensor, seen: Visibility, w: int
) -> Tensor:
    """Attend [S, H, G * W, D] branch queries to shared keys and to their own branch, and merge."""
    assert seen.shared is not None
    s, h, n, d = q.shape
    g, kv_heads = n // w, k.shape[1]
    folded = _fold(q, k)
    shared_mask = seen.shared.repeat(1, 1, folded.shape[2] // n, 1)
    out_shared, lse_shared = _attend_lse(folded, k, v, shared_mask)

    def by_branch(x: Tensor) -> Tensor:  # [S, heads, G * W, D] -> [S * G, heads, W, D]
        return x.reshape(s, -1, g, w, d).transpose(1, 2).reshape(s * g, -1, w, d)

    q_branch, k_branch, v_branch = by_branch(q), by_branch(k_own), by_branch(v_own)
    out_own, lse_own = _attend_lse(_fold(q_branch, k_branch), k_branch, v_branch, seen.own)

    def by_canvas(x: Tensor) -> Tensor:  # [S * G, K, (H / K) * W, c] -> [S, K, (H / K) * G * W, c]
        c = x.shape[-1]
        x = x.reshape(s, g, kv_heads, h // kv_heads, w, c).permute(0, 2, 3, 1, 4, 5)
        return x.reshape(s, kv_heads, -1, c)

    out_own, lse_own = by_canvas(out_own), by_canvas(lse_own[..., None])[..., 0]
    weight = torch.sigmoid(lse_own - lse_shared)[..., None].to(q.dtype)  # the own branch's share
    return _unfold(torch.lerp(out_shared, out_own, weight), q)


def _attend_lse(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return attention and its log-sum-exp [S, heads, rows]; a row that sees nothing gives 0 and -inf."""
    scores = (q @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    lse = torch.logsumexp(scores, dim=-1)
    shares = torch.exp(scores - torch.where(lse == -torch.inf, 0.0, lse)[..., None])
    return shares.to(v.dtype) @ v, lse


def _fold(q: Tensor, k: Tensor) -> Tensor:
    """Turn grouped query heads into more rows of their key head: [S, H, R, D] -> [S, K, (H / K) * R, D]."""
    return q if q.shape[1] == k.shape[1] else q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])


def _unfold(out: Tensor, q: Tensor) -> Tensor:
    return out.reshape(q.shape)
