"""Attention under masks equals softmax attention written out in float64."""

from __future__ import annotations

import pytest
import torch

from ripple.models.attention import attend_branches, attend_live, attention_masks
from ripple.models.base import ForwardInputs

S, N, R, G, W, D = 3, 20, 20, 4, 5, 8


def dense(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Softmax attention written out in float64; mask [S, rows, keys], True = visible."""
    k, v = (x.double().repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = (q.double() @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(~mask[:, None], float("-inf"))
    return (torch.softmax(scores, dim=-1) @ v).float()


def forward_with(
    hidden: list[list[tuple[int, int]]],
    key_len: list[int],
    own_len: list[list[int]],
    limit: torch.Tensor | None = None,
) -> ForwardInputs:
    """Inputs whose branch rows hide one range per branch."""
    ranges = torch.tensor(hidden)[:, :, None].expand(S, G, W, 2).reshape(S, G * W, 2)
    return ForwardInputs(
        ids=torch.zeros(S, R + G * W, dtype=torch.long),
        pos=torch.zeros(S, R + G * W, dtype=torch.long),
        n_live=R,
        branch_len=W,
        n_keys=N,
        key_len=torch.tensor(key_len),
        hide=ranges,
        own_len=torch.tensor(own_len),
        read=torch.zeros(0, dtype=torch.long),
        limit=limit,
    )


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_branches_equal_the_dense_reference(kv_heads: int, limited: bool) -> None:
    torch.manual_seed(kv_heads)
    q = torch.randn(S, 4, G * W, D)
    k, v = torch.randn(2, S, kv_heads, N, D)
    k_own, v_own = torch.randn(2, S, kv_heads, G * W, D)
    key_len = [20, 13, 9]
    hidden = [[(4, 9)] * G, [(0, 5)] * G, [(8, 9), (2, 3), (0, 9), (5, 9)]]  # (0, 9): sees only itself
    own_len = [[5, 5, 5, 5], [3, 5, 1, 2], [5, 4, 5, 5]]
    limit = torch.randint(0, N + 1, (S, R + G * W)) if limited else None  # 0: it sees its branch only
    fwd = forward_with(hidden, key_len, own_len, limit)
    out = attend_branches(q, k, v, k_own, v_own, attention_masks(fwd))

    mask = torch.zeros(S, G * W, N + G * W, dtype=torch.bool)
    for s in range(S):
        for row in range(G * W):
            g = row // W
            for n in range(key_len[s]):
                lo, hi = hidden[s][g]
                mask[s, row, n] = not lo <= n < hi and (limit is None or n < int(limit[s, R + row]))
            mask[s, row, N + g * W : N + g * W + own_len[s][g]] = True
    expected = dense(q, torch.cat([k, k_own], 2), torch.cat([v, v_own], 2), mask)
    torch.testing.assert_close(out, expected, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_live_rows_see_exactly_their_own_canvas_up_to_their_limit(kv_heads: int, limited: bool) -> None:
    torch.manual_seed(0)
    q = torch.randn(S, 4, R, D)
    k, v = torch.randn(2, S, kv_heads, N, D)
    key_len = [20, 13, 1]
    limit = torch.randint(1, N + 1, (S, R + G * W)) if limited else None
    fwd = forward_with([[(0, 0)] * G] * S, key_len, [[W] * G] * S, limit)
    out = attend_live(q, k, v, attention_masks(fwd))
    mask = (torch.arange(N) < torch.tensor(key_len)[:, None, None]).expand(S, R, N)
    if limit is not None:
        mask = mask & (torch.arange(N) < limit[:, :R, None])
    torch.testing.assert_close(out, dense(q, k, v, mask), atol=2e-6, rtol=1e-5)


def test_a_branch_does_not_see_its_siblings() -> None:
    torch.manual_seed(1)
    q = torch.randn(S, 4, G * W, D)
    k, v = torch.randn(2, S, 2, N, D)
    k_own, v_own = torch.randn(2, S, 2, G * W, D)
    fwd = forward_with([[(4, 9)] * G] * S, [N] * S, [[W] * G] * S)
    masks = attention_masks(fwd)
    before = attend_branches(q, k, v, k_own, v_own, masks)
    louder_k, louder_v = k_own.clone(), v_own.clone()
    louder_k[:, :, :W] += 5
    louder_v[:, :, :W] += 5
    after = attend_branches(q, k, v, louder_k, louder_v, masks)
    assert not torch.equal(before[:, :, :W], after[:, :, :W])
    torch.testing.assert_close(before[:, :, W:], after[:, :, W:])
