"""Matrix products for very few rows, where reading the weights is all that counts.

A block of a cached step has 32 rows. The library's products read the weights of a large model at 57 to 92 %
of the memory's speed there; these reach 73 to 95 % (docs/performance.md). Weights are the left operand, so
that their rows fill the tensor cores' 64 and the few activation rows are the narrow side. Where a product is
too narrow to occupy the device, its inner dimension is split; the next reader adds the parts.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

Tensor = torch.Tensor
MOST_ROWS = 64  # beyond, the library wins
LEAST_PROGRAMS = 120  # about one per multiprocessor


@triton.jit
def _tile(
    x, weight, m, k, column, row, start, n_inner,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Multiply BN rows of the weights by all rows of x, over inner columns start ... start + n_inner - 1."""
    inner = start + tl.arange(0, BK)
    w_at = weight + column[:, None].to(tl.int64) * k + inner[None, :]
    x_at = x + tl.minimum(row, m - 1)[None, :] * k + inner[:, None]
    acc = tl.zeros([BN, BM], tl.float32)
    for step in range(0, n_inner, BK):
        w_tile = tl.load(w_at + step, eviction_policy="evict_first")
        x_tile = tl.load(x_at + step, eviction_policy="evict_last")
        acc = tl.dot(w_tile, x_tile, acc, input_precision=PRECISION)
    return acc


@triton.jit
def _product(
    x, weight, bias, out, m, n, k, k_part,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    piece = tl.program_id(1)
    row = tl.arange(0, BM)
    acc = _tile(x, weight, m, k, column, row, piece * k_part, k_part, BM, BN, BK, PRECISION)
    if HAS_BIAS:
        acc += tl.load(bias + column).to(tl.float32)[:, None]
    to = out + (piece * m + row)[None, :].to(tl.int64) * n + column[:, None]
    tl.store(to, acc.to(out.dtype.element_ty), mask=(row < m)[None, :])


@triton.jit
def _gated(
    x, weight, out, m, d_ff, k,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of gate rows above the matching tile of up rows: one product, then silu(gate) * up."""
    half: tl.constexpr = BN // 2
    first = tl.program_id(0) * half
    stacked = tl.arange(0, BN)
    column = first + stacked % half + (stacked // half) * d_ff
    row = tl.arange(0, BM)
    acc = _tile(x, weight, m, k, column, row, 0, k, BM, BN, BK, PRECISION)
    gate, up = tl.split(acc.reshape(2, half, BM).permute(1, 2, 0))
    kind: tl.constexpr = out.dtype.element_ty
    gate, up = gate.to(kind).to(tl.float32), up.to(kind).to(tl.float32)
    silu = (gate / (1.0 + tl.exp(-gate))).to(kind).to(tl.float32)
    to = out + row[None, :] * d_ff + (first + tl.arange(0, half))[:, None]
    tl.store(to, (silu * up).to(kind), mask=(row < m)[None, :])


def fits(n_rows: int, *weights: Tensor) -> bool:
    """Say whether these kernels can multiply that few rows by these matrices."""
    whole_tiles = all(w.shape[0] % 64 == 0 and w.shape[1] % 256 == 0 for w in weights)
    return n_rows <= MOST_ROWS and n_rows % 16 == 0 and whole_tiles


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x @ weight.T + bias for few rows."""
    m, (n, k) = len(x), weight.shape
    out = x.new_empty(m, n)
    _launch(x, weight, bias, out, m, n, k, 1)
    return out


def linear_parts(x: Tensor, weight: Tensor) -> Tensor:
    """Return x @ weight.T as fp32 parts [p, rows, n] that are still to be added up."""
    m, (n, k) = len(x), weight.shape
    parts = next((p for p in (1, 2, 4) if n // 64 * p >= LEAST_PROGRAMS), 4)
    out = torch.empty(parts, m, n, device=x.device)
    _launch(x, weight, None, out, m, n, k, parts)
    return out


def _launch(
    x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, m: int, n: int, k: int, parts: int
) -> None:
    wide = x.dtype == torch.float32
    _product[(n // 64, parts)](
        x, weight, weight if bias is None else bias, out, m, n, k, k // parts,
        BM=32 if m <= 32 else 64, BN=64, BK=32 if wide else (128 if k // parts % 128 == 0 else 64),
        HAS_BIAS=bias is not None, PRECISION="ieee" if wide else "tf32", num_warps=4,
        num_stages=1 if wide else (3 if parts == 1 else 5),
    )  # fmt: skip


def gated(x: Tensor, gate_up: Tensor) -> Tensor:
    """Return silu(x @ gate.T) * (x @ up.T) for few rows."""
    m, k, d_ff = len(x), x.shape[1], gate_up.shape[0] // 2
    out = x.new_empty(m, d_ff)
    wide = x.dtype == torch.float32
    _gated[(d_ff // 32,)](
        x, gate_up, out, m, d_ff, k, BM=32 if m <= 32 else 64, BN=64, BK=32 if wide else 128,
        PRECISION="ieee" if wide else "tf32", num_warps=4, num_stages=1 if wide else 3,
    )  # fmt: skip
    return out
