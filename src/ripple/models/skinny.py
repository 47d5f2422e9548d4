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

from ripple.models.kernels import Rotation, rotated

Tensor = torch.Tensor
ROWS = (16, 32, 64)  # beyond 64 the library wins, and at 48 it is as fast
LEAST_PROGRAMS = 120  # about one per multiprocessor


@triton.jit
def _tile(
    x, weight, m, k, column, row, start, n_inner,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Multiply BN rows of the weights by all rows of x, over inner columns start ... start + n_inner - 1."""
    inner = start + tl.arange(0, BK)
    w_at = weight + column[:, None].to(tl.int64) * k + inner[None, :]
    x_at = x + (row % m)[None, :] * k + inner[:, None]  # rows beyond m: spread, or all would read one line
    acc = tl.zeros([BN, BM], tl.float32)
    for step in range(0, n_inner, BK):
        w_tile = tl.load(w_at + step, eviction_policy="evict_first")
        x_tile = tl.load(x_at + step, eviction_policy="evict_last")
        acc = tl.dot(w_tile, x_tile, acc, input_precision=PRECISION)
    return acc


@triton.jit
def _product(
    x, weight, out, m, n, k, k_part,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    piece = tl.program_id(1)
    row = tl.arange(0, BM)
    acc = _tile(x, weight, m, k, column, row, piece * k_part, k_part, BM, BN, BK, PRECISION)
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


@triton.jit
def _rotated_qkv(
    x, weight, bias, qkv, pos, cos, sin, k_store, v_store, slots, m, k, n_rows, n_live,
    slot_stride, head_stride, H: tl.constexpr, K: tl.constexpr, D: tl.constexpr, BM: tl.constexpr,
    BK: tl.constexpr, HAS_BIAS: tl.constexpr, IN_FP32: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """32 columns of a head's first half above their partners in the second: a product, then the rotation."""
    half: tl.constexpr = D // 2
    pieces: tl.constexpr = half // 32
    head, first = tl.program_id(0) // pieces, tl.program_id(0) % pieces * 32
    stacked = tl.arange(0, 64)
    column = head * D + first + stacked % 32 + (stacked // 32) * half
    row, here = tl.arange(0, BM), first + tl.arange(0, 32)
    exists, turns = row < m, head < H + K  # values are not rotated
    # What the end needs is asked for at the beginning, or its way from memory would be waited for there.
    at = tl.load(pos + row, mask=exists, other=0)
    home = tl.load(slots + row // n_rows, mask=exists, other=0) * slot_stride + at * D
    c = tl.load(cos + at[None, :] * D + here[:, None], mask=turns, other=0.0).to(tl.float32)
    s = tl.load(sin + at[None, :] * D + here[:, None], mask=turns, other=0.0).to(tl.float32)
    acc = _tile(x, weight, m, k, column, row, 0, k, BM, 64, BK, PRECISION)
    if HAS_BIAS:
        acc += tl.load(bias + column).to(tl.float32)[:, None]
    one, two = tl.split(acc.reshape(2, 32, BM).permute(1, 2, 0))
    kind: tl.constexpr = qkv.dtype.element_ty
    one, two = one.to(kind), two.to(kind)
    if turns:
        wide_one, wide_two = one.to(tl.float32), two.to(tl.float32)
        one = rotated(wide_one, -wide_two, c, s, kind, IN_FP32)
        two = rotated(wide_two, wide_one, c, s, kind, IN_FP32)
    to = qkv + (row * (H + 2 * K) * D + head * D)[None, :] + here[:, None]
    tl.store(to, one, mask=exists[None, :])
    tl.store(to + half, two, mask=exists[None, :])
    if head >= H:  # keys and values of live rows go into the store
        is_live = exists & (row % n_rows < n_live)
        store = k_store + (head - H) * head_stride
        if head >= H + K:
            store = v_store + (head - H - K) * head_stride
        tl.store(store + home[None, :] + here[:, None], one, mask=is_live[None, :])
        tl.store(store + home[None, :] + here[:, None] + half, two, mask=is_live[None, :])


def fits(n_rows: int, *weights: Tensor) -> bool:
    """Say whether these kernels can multiply that few rows by these matrices."""
    whole_tiles = all(w.shape[0] % 64 == 0 and w.shape[1] % 256 == 0 for w in weights)
    return n_rows in ROWS and whole_tiles


def rotated_qkv(x: Tensor, weight: Tensor, bias: Tensor | None, how: Rotation) -> Tensor:
    """Return x @ weight.T + bias for few rows, rotated and stored as by `rotate_and_store`."""
    pos, cos, sin, stores, slots, n_live, n_heads, in_fp32 = how
    assert stores is not None, "keys and values need a place to go"
    k_store, v_store = stores
    m, (n, k) = len(x), weight.shape
    _, k_heads, _, d = k_store.shape
    out, wide = x.new_empty(m, n), x.dtype == torch.float32
    _rotated_qkv[(n // 64,)](
        x, weight, weight if bias is None else bias, out, pos, cos, sin, k_store, v_store, slots, m, k,
        pos.shape[1], n_live, k_store.stride(0), k_store.stride(1), H=n_heads, K=k_heads, D=d,
        BM=32 if m <= 32 else 64, BK=32 if wide else (128 if k % 128 == 0 else 64),
        HAS_BIAS=bias is not None, IN_FP32=in_fp32, PRECISION="ieee" if wide else "tf32", num_warps=4,
        num_stages=1 if wide else 3,
    )  # fmt: skip
    return out


def can_rotate(n_rows: int, weight: Tensor, head_dim: int) -> bool:
    """Say whether `rotated_qkv` can take this product, and whether it is wide enough to fill the device."""
    return fits(n_rows, weight) and weight.shape[0] >= 64 * LEAST_PROGRAMS and head_dim % 64 == 0


def linear_parts(x: Tensor, weight: Tensor) -> Tensor:
    """Return x @ weight.T as fp32 parts [p, rows, n] that are still to be added up."""
    m, (n, k) = len(x), weight.shape
    parts = next((p for p in (1, 2, 4) if n // 64 * p >= LEAST_PROGRAMS), 4)
    out = torch.empty(parts, m, n, device=x.device)
    wide = x.dtype == torch.float32
    _product[(n // 64, parts)](
        x, weight, out, m, n, k, k // parts,
        BM=32 if m <= 32 else 64, BN=64, BK=32 if wide else (128 if k // parts % 128 == 0 else 64),
        PRECISION="ieee" if wide else "tf32", num_warps=4, num_stages=1 if wide else (3 if parts == 1 else 5),
    )  # fmt: skip
    return out


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
