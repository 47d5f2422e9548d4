"""Triton kernels of the fp8 network: what they give the next product are e4m3 rows with their scales.

A product leaves sums of e4m3 numbers as they are, in bf16 or fp32; the kernel that reads them multiplies them
by the scales of their rows and channels. So a product can be the library's fastest, which knows no such
scales. Each kernel rounds where the plain code (models/fp8.py) does.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ripple.models.fp8 import FP8, LARGEST, LEAST
from ripple.models.gpu.kernels import ELEMENTS_PER_WARP, overlaps

Tensor = torch.Tensor
MOST_HELD = 16384  # numbers of a row that the registers of one program hold
# Triton's interpreter rounds e4m3 numbers wrongly next to powers of two; there they are rounded beforehand.
_IS_INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))
_LARGEST, _LEAST = tl.constexpr(LARGEST), tl.constexpr(LEAST)


class Fp8Rows(NamedTuple):
    """Fp8Rows as a product takes them."""

    numbers: Tensor  # [n, k] e4m3
    scale: Tensor  # [n] fp32


class Fp8Sums(NamedTuple):
    """A product before it is multiplied by the scales of its rows and channels."""

    parts: Tensor  # [p, n, d] to be added up
    row_scale: Tensor  # [n]
    channel_scale: Tensor  # [d, 1]


@triton.jit
def _e4m3(x):
    """Round numbers of at most 448 to e4m3."""
    if _IS_INTERPRETED:
        bits = x.to(tl.int32, bitcast=True) & 0x7F800000
        step = tl.maximum(bits, 121 << 23) + (20 << 23) + 0x400000  # 1.5 * 2^23 times the distance of two
        magic = step.to(tl.float32, bitcast=True)
        x = (x + magic) - magic
    return x.to(tl.float8e4nv)


@triton.jit
def _await_rows(OVERLAPS: tl.constexpr):
    """Let the next kernel come, and wait for the one before."""
    if OVERLAPS:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def _inverse(largest):
    return tl.div_rn(tl.full(largest.shape, _LARGEST, tl.float32), tl.maximum(largest, _LEAST))


@triton.jit
def _store_quantised(x, row, col, mask, out, out_scale, d):
    """Store one row, fp32, and its scale."""
    largest = tl.max(tl.abs(x), 0)
    tl.store(out + row * d + col, _e4m3(x * _inverse(largest)), mask=mask)
    tl.store(out_scale + row, tl.maximum(largest, _LEAST) * (1 / _LARGEST))


@triton.jit
def _add_norm(
    x, parts, row_scale, channel_scale, weight, out, out_scale, n, d, eps,
    PARTS: tl.constexpr, QUANTISES: tl.constexpr, BLOCK: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    mask = col < d
    gain = tl.load(weight + col, mask=mask, other=0.0)  # issued early to hide DRAM latency
    _await_rows(OVERLAPS)
    value = tl.load(x + row * d + col, mask=mask, other=0.0)
    value_fp32 = value.to(tl.float32)
    if PARTS > 0:
        total = tl.zeros([BLOCK], tl.float32)
        for part in tl.static_range(PARTS):
            total += tl.load(parts + (part * n + row) * d + col, mask=mask, other=0.0).to(tl.float32)
        scale = tl.load(row_scale + row) * tl.load(channel_scale + col, mask=mask, other=0.0)
        rounded = (value_fp32 + total * scale).to(value.dtype)
        tl.store(x + row * d + col, rounded, mask=mask)
        value_fp32 = rounded.to(tl.float32)
    norm = tl.rsqrt(tl.sum(value_fp32 * value_fp32) / d + eps)
    normed = (value_fp32 * norm).to(value.dtype)
    scaled = (normed.to(tl.float32) * gain.to(tl.float32)).to(value.dtype)
    if QUANTISES:
        _store_quantised(scaled.to(tl.float32), row, col, mask, out, out_scale, d)
    else:
        tl.store(out + row * d + col, scaled, mask=mask)


def add_norm(x: Tensor, sums: Fp8Sums | None, weight: Tensor, eps: float) -> Fp8Rows:
    """Add sums, if any, to x [n, d] in place; return its rows normalised, scaled and quantised."""
    rows = _empty_rows(len(x), x.shape[1], x.device)
    _launch_add_norm(x, sums, weight, rows.numbers, rows.scale, eps)
    return rows


def last_norm(x: Tensor, sums: Fp8Sums, weight: Tensor, eps: float) -> Tensor:
    """Add sums to x [n, d] in place; return its rows normalised and scaled, as the head takes them."""
    out = torch.empty_like(x)
    _launch_add_norm(x, sums, weight, out, None, eps)
    return out


def _launch_add_norm(
    x: Tensor, sums: Fp8Sums | None, weight: Tensor, out: Tensor, out_scale: Tensor | None, eps: float
) -> None:
    n, d = x.shape
    parts, row_scale, channel_scale = sums or (x, x, x)
    block = triton.next_power_of_2(d)
    _add_norm[(n,)](
        x, parts, row_scale, channel_scale, weight, out, x if out_scale is None else out_scale, n, d, eps,
        PARTS=0 if sums is None else len(sums.parts), QUANTISES=out_scale is not None, BLOCK=block,
        num_warps=min(16, 2 * _warps(block)), **_overlap(x.device),
    )  # fmt: skip


@triton.jit
def _quantise(x, out, out_scale, d, BLOCK: tl.constexpr, OVERLAPS: tl.constexpr):
    _await_rows(OVERLAPS)
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    mask = col < d
    value = tl.load(x + row * d + col, mask=mask, other=0.0).to(tl.float32)
    _store_quantised(value, row, col, mask, out, out_scale, d)


def quantise(x: Tensor) -> Fp8Rows:
    """Return the rows of x [n, d] quantised."""
    n, d = x.shape
    rows = _empty_rows(n, d, x.device)
    block = triton.next_power_of_2(d)
    _quantise[(n,)](x, *rows, d, BLOCK=block, num_warps=min(16, 2 * _warps(block)), **_overlap(x.device))
    return rows


@triton.jit
def _gated(sums, row_scale, channel_scale, row, col, d_ff, dtype: tl.constexpr):
    """Part of silu(gate) * up of one row, in fp32."""
    mask = col < d_ff
    at = sums + row * 2 * d_ff + col
    by = tl.load(row_scale + row)
    gate = tl.load(at, mask=mask, other=0.0).to(tl.float32) * (
        by * tl.load(channel_scale + col, mask=mask, other=0.0)
    )
    up = tl.load(at + d_ff, mask=mask, other=0.0).to(tl.float32) * (
        by * tl.load(channel_scale + d_ff + col, mask=mask, other=0.0)
    )
    gate, up = gate.to(dtype).to(tl.float32), up.to(dtype).to(tl.float32)
    silu = (gate / (1.0 + tl.exp(-gate))).to(dtype).to(tl.float32)
    return (silu * up).to(dtype).to(tl.float32)


@triton.jit
def _silu_mul(
    sums, row_scale, channel_scale, out, out_scale, D_FF: tl.constexpr, dtype: tl.constexpr,
    BLOCK: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """One row; too long a one is computed twice, because its scale is known only at its end."""
    _await_rows(OVERLAPS)
    row = tl.program_id(0).to(tl.int64)
    if BLOCK >= D_FF:
        col = tl.arange(0, BLOCK)
        value = _gated(sums, row_scale, channel_scale, row, col, D_FF, dtype)
        _store_quantised(value, row, col, col < D_FF, out, out_scale, D_FF)
        return
    largest = tl.zeros([BLOCK], tl.float32)
    for start in range(0, D_FF, BLOCK):
        col = start + tl.arange(0, BLOCK)
        largest = tl.maximum(largest, tl.abs(_gated(sums, row_scale, channel_scale, row, col, D_FF, dtype)))
    of_row = tl.max(largest, 0)
    inverse = _inverse(of_row)
    tl.store(out_scale + row, tl.maximum(of_row, _LEAST) * (1 / _LARGEST))
    for start in range(0, D_FF, BLOCK):
        col = start + tl.arange(0, BLOCK)
        value = _gated(sums, row_scale, channel_scale, row, col, D_FF, dtype)
        tl.store(out + row * D_FF + col, _e4m3(value * inverse), mask=col < D_FF)


def silu_mul(sums: Tensor, row_scale: Tensor, channel_scale: Tensor, dtype: torch.dtype) -> Fp8Rows:
    """Return silu(gate) * up, rounded to `dtype` and quantised, of the sums [n, 2 * d_ff] of a product."""
    n, d_ff = sums.shape[0], sums.shape[1] // 2
    rows = _empty_rows(n, d_ff, sums.device)
    whole = triton.next_power_of_2(d_ff)
    block = whole if whole <= MOST_HELD else 4096
    _silu_mul[(n,)](
        sums, row_scale, channel_scale, *rows, D_FF=d_ff,
        dtype=tl.bfloat16 if dtype == torch.bfloat16 else tl.float32, BLOCK=block,
        num_warps=min(16, 2 * _warps(block)), **_overlap(sums.device),
    )  # fmt: skip
    return rows


def _empty_rows(n: int, k: int, device: torch.device) -> Fp8Rows:
    return Fp8Rows(torch.empty(n, k, dtype=FP8, device=device), torch.empty(n, device=device))


def _overlap(device: torch.device) -> dict[str, bool]:
    return {"OVERLAPS": True, "launch_pdl": True} if overlaps(device) else {"OVERLAPS": False}


def _warps(n: int) -> int:
    return min(8, max(1, n // ELEMENTS_PER_WARP))
