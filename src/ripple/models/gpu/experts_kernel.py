"""The products of chosen experts: pairs of a row and an expert, sorted by expert, each weight read once.

A block has 32 rows of which each goes to 8 of 256 experts, so most experts have one row or two and reading
weights is all there is. Weights are the left operand, as in skinny.py; the few rows of an expert are the N
side, 16 at a time. Experts that nobody chose read nothing.

Shapes: n rows of d, k experts of each, E experts of f; n * k pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

Tensor = torch.Tensor
ROWS = 16  # of one expert that a program multiplies at a time
MANY_ROWS = 64  # where experts have so many


class Pairs(NamedTuple):
    """Which rows go to which expert."""

    order: Tensor  # [n * k] numbers of pairs, sorted by expert; pair i is of row i // k
    first: Tensor  # [E + 1] where each expert's pairs begin
    weight: Tensor  # [n * k] fp32, by number
    k: int

    @property
    def rows_at_once(self) -> int:
        """How many rows of an expert a program takes at a time."""
        return MANY_ROWS if len(self.order) > MANY_ROWS * (len(self.first) - 1) else ROWS


def sorted_pairs(chosen: Tensor, weight: Tensor, n_experts: int) -> Pairs:
    """Sort the choice [n, k] by expert; every tensor's shape depends on n alone."""
    expert, order = chosen.flatten().sort(stable=True)
    first = torch.searchsorted(expert, torch.arange(n_experts + 1, device=chosen.device))
    return Pairs(order, first, weight.flatten(), chosen.shape[1])


@triton.jit
def _tile(
    x_at, w_at, n_inner, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """Multiply BN rows of weights by BM rows of x."""
    acc = tl.zeros([BN, BM], tl.float32)
    for step in range(0, n_inner, BK):
        acc = tl.dot(tl.load(w_at + step), tl.load(x_at + step), acc, input_precision=PRECISION)
    return acc


@triton.jit
def _expert_gated(
    x, weight, out, order, first, d, f, K: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of an expert's gate rows above the matching tile of up rows, for all rows that go to it."""
    half: tl.constexpr = BN // 2
    expert, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * half
    stacked, inner = tl.arange(0, BN), tl.arange(0, BK)
    w_row = expert * 2 * f + column + stacked % half + (stacked // half) * f
    w_at = weight + w_row[:, None] * d + inner[None, :]
    dtype: tl.constexpr = out.dtype.element_ty
    start, stop = tl.load(first + expert), tl.load(first + expert + 1)
    for begin in range(start, stop, BM):
        at = begin + tl.arange(0, BM)
        row = tl.load(order + tl.minimum(at, stop - 1)) // K
        acc = _tile(x + row[None, :] * d + inner[:, None], w_at, d, BM, BN, BK, PRECISION)
        gate, up = tl.split(acc.reshape(2, half, BM).permute(1, 2, 0))
        gate, up = gate.to(dtype).to(tl.float32), up.to(dtype).to(tl.float32)
        silu = (gate / (1.0 + tl.exp(-gate))).to(dtype).to(tl.float32)
        to = out + at[None, :] * f + (column + tl.arange(0, half))[:, None]
        tl.store(to, (silu * up).to(dtype), mask=(at < stop)[None, :])


@triton.jit
def _expert_down(
    x, weight, out, order, first, pair_weight, d, f, dtype: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of an expert's down rows, for all rows that go to it; weighted, in fp32."""
    expert, inner = tl.program_id(0).to(tl.int64), tl.arange(0, BK)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    w_at = weight + (expert * d + column)[:, None] * f + inner[None, :]
    start, stop = tl.load(first + expert), tl.load(first + expert + 1)
    for begin in range(start, stop, BM):
        at = begin + tl.arange(0, BM)
        inside = tl.minimum(at, stop - 1)
        pair = tl.load(order + inside)
        acc = _tile(x + inside[None, :] * f + inner[:, None], w_at, f, BM, BN, BK, PRECISION)
        acc = acc.to(dtype).to(tl.float32) * tl.load(pair_weight + pair)[None, :]
        tl.store(out + pair[None, :] * d + column[:, None], acc, mask=(at < stop)[None, :])


def routed(rows: Tensor, pairs: Pairs, gate_up: Tensor, down: Tensor) -> Tensor:
    """Return what the chosen experts add to rows [n, d], in fp32."""
    n_experts, d, f = down.shape
    n_pairs, bm = len(pairs.order), pairs.rows_at_once
    precision = "ieee" if rows.dtype == torch.float32 else "tf32"
    how = {"BM": bm, "BN": 64, "BK": 32 if rows.dtype == torch.float32 else 128, "PRECISION": precision}
    gated = rows.new_empty(n_pairs, f)
    _expert_gated[(n_experts, f // 32)](
        rows, gate_up, gated, pairs.order, pairs.first, d, f, K=pairs.k, **how, num_warps=4, num_stages=3
    )
    out = torch.empty(n_pairs, d, device=rows.device)
    _expert_down[(n_experts, d // 64)](
        gated, down, out, pairs.order, pairs.first, pairs.weight, d, f,
        dtype=tl.bfloat16 if rows.dtype == torch.bfloat16 else tl.float32, **how, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out.view(len(rows), pairs.k, d).sum(1)
