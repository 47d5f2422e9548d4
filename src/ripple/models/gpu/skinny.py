"""Matrix products for very few rows, which are bound by reading the weights.

A block of a cached step has 32 rows. The library's products read the weights of a large model at 57 to 92 %
of the memory bandwidth there; these reach 73 to 95 % (docs/performance.md). Weights are the left operand, so
that their rows fill the tensor cores' M = 64 and the few activation rows are the N side. A product with too
few tiles to occupy the device has its inner dimension split (split-K); the next kernel adds the parts.

In fp8 (see fp8_kernels.py) the same kernels take twice as many inner columns at a time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ripple.models.gpu.kernels import Rotation, overlaps, rotated

Tensor = torch.Tensor
ROWS = (16, 32, 64)  # beyond 64 the library is faster, at 48 as fast
LEAST_PROGRAMS = 120  # about one per multiprocessor
SMALLEST_SHARED_BYTES = 101_376  # of a block, on any GPU since Ampere; Hopper has 232,448


class Fp8Tile(NamedTuple):
    """How a program of an fp8 product runs."""

    columns: int  # rows of the weights
    inner: int  # columns of both at a time
    warps: int
    stages: int


WHOLE = Fp8Tile(64, 256, 4, 3)  # q-k-v, gate and up, whose columns their epilogues fix
SPLIT = Fp8Tile(64, 256, 4, 5)  # out and down
AHEAD = 4  # lines of 128 bytes that a program of an fp8 product asks for in each of its weights' rows, early


@triton.jit
def _tile(
    x, weight, m, k, column, row, start, n_inner,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Multiply BN rows of the weights by all rows of x, over inner columns start ... start + n_inner - 1."""
    inner = start + tl.arange(0, BK)
    w_at = weight + column[:, None].to(tl.int64) * k + inner[None, :]
    x_at = (
        x + (row % m)[None, :] * k + inner[:, None]
    )  # rows beyond m wrap around, so that they do not all read one cache line
    acc = tl.zeros([BN, BM], tl.float32)
    for step in range(0, n_inner, BK):
        w_tile = tl.load(w_at + step, eviction_policy="evict_first")
        x_tile = tl.load(x_at + step, eviction_policy="evict_last")
        if weight.dtype.element_ty == tl.float8e4nv:  # tensor cores add e4m3 products in 14 bits
            acc = tl.dot(w_tile, x_tile, acc, max_num_imprecise_acc=BK)
        else:
            acc = tl.dot(w_tile, x_tile, acc, input_precision=PRECISION)
    return acc


@triton.jit
def _await_rows(weight, k, column, start, AHEAD: tl.constexpr):
    """Ask for the first weights, let the next kernel come, and wait for the kernel before, which makes x."""
    line = start + 128 * tl.arange(0, AHEAD)
    at = (weight + column[:, None].to(tl.int64) * k + line[None, :]).to(tl.int64)
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [at], dtype=tl.int32, is_pure=False, pack=1
    )
    gdc_launch_dependents()
    gdc_wait()


@triton.jit
def _product(
    x, weight, out, m, n, k, k_part, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr, AHEAD: tl.constexpr = 0,
):  # fmt: skip
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    part = tl.program_id(1)
    row = tl.arange(0, BM)
    if AHEAD:
        _await_rows(weight, k, column, part * k_part, AHEAD)
    acc = _tile(x, weight, m, k, column, row, part * k_part, k_part, BM, BN, BK, PRECISION)
    to = out + (part * m + row)[None, :].to(tl.int64) * n + column[:, None]
    tl.store(to, acc.to(out.dtype.element_ty), mask=(row < m)[None, :])


@triton.jit
def _scaled(acc, row_scale, channel_scale, row, column, m):
    """An fp8 product's tile [BN, BM] times the scales of its rows and channels."""
    by_row = tl.load(row_scale + row, mask=row < m, other=0.0)
    return acc * (by_row[None, :] * tl.load(channel_scale + column)[:, None])


@triton.jit
def _gated(
    x, weight, out, row_scale, channel_scale, m, d_ff, k,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr, IS_FP8: tl.constexpr,
    AHEAD: tl.constexpr = 0,
):  # fmt: skip
    """One tile of gate rows above the matching tile of up rows: one product, then silu(gate) * up."""
    half: tl.constexpr = BN // 2
    first = tl.program_id(0) * half
    stacked = tl.arange(0, BN)
    column = first + stacked % half + (stacked // half) * d_ff
    row = tl.arange(0, BM)
    if AHEAD:
        _await_rows(weight, k, column, 0, AHEAD)
    acc = _tile(x, weight, m, k, column, row, 0, k, BM, BN, BK, PRECISION)
    if IS_FP8:
        acc = _scaled(acc, row_scale, channel_scale, row, column, m)
    gate, up = tl.split(acc.reshape(2, half, BM).permute(1, 2, 0))
    dtype: tl.constexpr = out.dtype.element_ty
    gate, up = gate.to(dtype).to(tl.float32), up.to(dtype).to(tl.float32)
    silu = (gate / (1.0 + tl.exp(-gate))).to(dtype).to(tl.float32)
    to = out + row[None, :] * d_ff + (first + tl.arange(0, half))[:, None]
    tl.store(to, (silu * up).to(dtype), mask=(row < m)[None, :])


@triton.jit
def _rotated_qkv(
    x, weight, bias, qkv, row_scale, channel_scale, pos, cos, sin, k_store, v_store, slots, m, k, n_rows,
    n_live, slot_stride, head_stride, H: tl.constexpr, K: tl.constexpr, D: tl.constexpr, BM: tl.constexpr,
    BK: tl.constexpr, HAS_BIAS: tl.constexpr, IN_FP32: tl.constexpr, PRECISION: tl.constexpr,
    IS_FP8: tl.constexpr, AHEAD: tl.constexpr = 0,
):  # fmt: skip
    """32 columns of a head's first half above their partners in the second: a product, then the rotation."""
    half: tl.constexpr = D // 2
    pieces: tl.constexpr = half // 32
    head, first = tl.program_id(0) // pieces, tl.program_id(0) % pieces * 32
    stacked = tl.arange(0, 64)
    column = head * D + first + stacked % 32 + (stacked // 32) * half
    row, col = tl.arange(0, BM), first + tl.arange(0, 32)
    exists, rotates = row < m, head < H + K  # values are not rotated
    if AHEAD:
        _await_rows(weight, k, column, 0, AHEAD)
    # Prefetch the epilogue's operands: their latency is hidden by the product.
    p = tl.load(pos + row, mask=exists, other=0)
    offset = tl.load(slots + row // n_rows, mask=exists, other=0) * slot_stride + p * D
    c = tl.load(cos + p[None, :] * D + col[:, None], mask=rotates, other=0.0).to(tl.float32)
    s = tl.load(sin + p[None, :] * D + col[:, None], mask=rotates, other=0.0).to(tl.float32)
    acc = _tile(x, weight, m, k, column, row, 0, k, BM, 64, BK, PRECISION)
    if IS_FP8:
        acc = _scaled(acc, row_scale, channel_scale, row, column, m)
    if HAS_BIAS:
        acc += tl.load(bias + column).to(tl.float32)[:, None]
    one, two = tl.split(acc.reshape(2, 32, BM).permute(1, 2, 0))
    dtype: tl.constexpr = qkv.dtype.element_ty
    one, two = one.to(dtype), two.to(dtype)
    if rotates:
        one_fp32, two_fp32 = one.to(tl.float32), two.to(tl.float32)
        one = rotated(one_fp32, -two_fp32, c, s, dtype, IN_FP32)
        two = rotated(two_fp32, one_fp32, c, s, dtype, IN_FP32)
    to = qkv + (row * (H + 2 * K) * D + head * D)[None, :] + col[:, None]
    tl.store(to, one, mask=exists[None, :])
    tl.store(to + half, two, mask=exists[None, :])
    if head >= H:  # keys and values of live rows are stored
        is_live = exists & (row % n_rows < n_live)
        store = k_store + (head - H) * head_stride
        if head >= H + K:
            store = v_store + (head - H - K) * head_stride
        tl.store(store + offset[None, :] + col[:, None], one, mask=is_live[None, :])
        tl.store(store + offset[None, :] + col[:, None] + half, two, mask=is_live[None, :])


def fits(n_rows: int, *weights: Tensor) -> bool:
    """Say whether these kernels can multiply that few rows by these matrices."""
    whole_tiles = all(w.shape[0] % 64 == 0 and w.shape[1] % 256 == 0 for w in weights)
    return n_rows in ROWS and whole_tiles


def rotated_qkv(x: Tensor, weight: Tensor, bias: Tensor | None, rotation: Rotation) -> Tensor:
    """Return x @ weight.T + bias for few rows, rotated and stored as by `rotate_and_store`.

    Rows and weights of e4m3 numbers come with `rotation.scales`.
    """
    pos, cos, sin, stores, slots, n_live, n_heads, _, in_fp32, *_ = rotation
    assert stores is not None
    k_store, v_store = stores
    (m, k), n = x.shape, len(weight)
    _, k_heads, _, d = k_store.shape
    row_scale, channel_scale, _ = rotation.scales or (x, x, None)
    out = torch.empty(m, n, dtype=k_store.dtype, device=x.device)
    _rotated_qkv[(n // 64,)](
        x, weight, weight if bias is None else bias, out, row_scale, channel_scale, pos, cos, sin, k_store,
        v_store, slots, m, k, pos.shape[1], n_live, k_store.stride(0), k_store.stride(1), H=n_heads,
        K=k_heads, D=d, BM=32 if m <= 32 else 64, HAS_BIAS=bias is not None, IN_FP32=in_fp32,
        IS_FP8=rotation.scales is not None, **_how(x, weight, k),
    )  # fmt: skip
    return out


def can_rotate(n_rows: int, weight: Tensor, head_dim: int) -> bool:
    """Say whether `rotated_qkv` can take this product, and whether it is wide enough to fill the device."""
    return fits(n_rows, weight) and weight.shape[0] >= 64 * LEAST_PROGRAMS and head_dim % 64 == 0


def linear_parts(x: Tensor, weight: Tensor) -> Tensor:
    """Return x @ weight.T as fp32 parts [p, rows, n] that are still to be added up."""
    m, (n, k) = len(x), weight.shape
    bn = SPLIT.columns if weight.dtype.itemsize == 1 and n % SPLIT.columns == 0 else 64
    parts = next((p for p in (1, 2, 4) if n // bn * p >= LEAST_PROGRAMS), 4)
    out = torch.empty(parts, m, n, device=x.device)
    _product[(n // bn, parts)](
        x, weight, out, m, n, k, k // parts, BM=32 if m <= 32 else 64, BN=bn,
        **_how(x, weight, k // parts, 3 if parts == 1 else 5, SPLIT),
    )  # fmt: skip
    return out


def gated(
    x: Tensor, gate_up: Tensor, scales: tuple[Tensor, Tensor] | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Return silu(x @ gate.T) * (x @ up.T) for few rows; fp8 has scales of rows and channels, and a dtype."""
    m, k, d_ff = len(x), x.shape[1], gate_up.shape[0] // 2
    out = torch.empty(m, d_ff, dtype=dtype or x.dtype, device=x.device)
    _gated[(d_ff // 32,)](
        x, gate_up, out, *(scales or (x, x)), m, d_ff, k, BM=32 if m <= 32 else 64, BN=64,
        IS_FP8=scales is not None, **_how(x, gate_up, k),
    )  # fmt: skip
    return out


def _how(x: Tensor, weight: Tensor, n_inner: int, stages: int = 3, tile: Fp8Tile = WHOLE) -> dict[str, Any]:
    """Return how a product over so many inner columns is run."""
    if x.dtype == torch.float32:
        return {"BK": 32, "PRECISION": "ieee", "num_warps": 4, "num_stages": 1}
    if weight.dtype.itemsize > 1:
        bk = next(width for width in (128, 64) if n_inner % width == 0)
        stages = _stages(x, 2 * bk, stages)
        return {"BK": bk, "PRECISION": "tf32", "num_warps": 4, "num_stages": stages}
    bk = next(width for width in (tile.inner, 128, 64) if n_inner % width == 0)
    stages = _stages(x, bk, tile.stages)
    how = {"BK": bk, "PRECISION": "tf32", "num_warps": tile.warps, "num_stages": stages}
    if overlaps(x.device):
        how |= {"AHEAD": AHEAD if n_inner >= 128 * AHEAD else 1, "launch_pdl": True}
    return how


def _stages(x: Tensor, row_bytes: int, wanted: int) -> int:
    """Return how many tiles may be in flight: on GPUs older or smaller than Hopper's fewer have room."""
    n_rows = 64 + (32 if len(x) <= 32 else 64)  # of the weights' tile and of x's
    return min(wanted, _shared_bytes(x.device) // (n_rows * row_bytes))


@lru_cache(maxsize=8)
def _shared_bytes(device: torch.device) -> int:
    """Return how much shared memory a block can have."""
    if device.type != "cuda":
        return 1 << 20  # Triton's interpreter has no limit
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", SMALLEST_SHARED_BYTES))
