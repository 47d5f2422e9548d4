"""Triton kernels of the GPU path: everything between two matrix products, one launch each.

Each does what the plain code beside it does (`rms_norm` and `_rotate` in transformer.py, `overlay` in kv.py),
rounds where that rounds, and is tested equal to it. Attention has its own file, attention_kernel.py.

Shapes: S canvases of T rows each (R live, then branches), H query heads, K key heads, D head_dim.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

Tensor = torch.Tensor
PER_WARP = 512  # numbers; as many warps as the work needs, so that narrow models fill the device
PAIRS_AT_ONCE = 1024  # rotated by one program


@triton.jit
def _add_norm(
    x, parts, weight, out, n, d, eps, PARTS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < d
    gain = tl.load(weight + at, mask=inside, other=0.0)  # long before it is needed: it comes from far away
    value = tl.load(x + row * d + at, mask=inside, other=0.0)
    wide = value.to(tl.float32)
    if PARTS > 0:
        for piece in tl.static_range(PARTS):
            wide += tl.load(parts + (piece * n + row) * d + at, mask=inside, other=0.0)
        rounded = wide.to(value.dtype)
        tl.store(x + row * d + at, rounded, mask=inside)
        wide = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide) / d + eps)
    normed = (wide * scale).to(value.dtype)
    scaled = normed.to(tl.float32) * gain.to(tl.float32)
    tl.store(out + row * d + at, scaled.to(value.dtype), mask=inside)


def add_norm(x: Tensor, parts: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """Add parts [p, n, d] in fp32, if any, to x [n, d] in place; return its rows normalised and scaled."""
    out = torch.empty_like(x)
    n, d = x.shape
    n_parts = 0 if parts is None else len(parts)
    block = triton.next_power_of_2(d)
    _add_norm[(n,)](
        x, x if parts is None else parts, weight, out, n, d, eps, PARTS=n_parts, BLOCK=block,
        num_warps=min(16, 2 * _warps(block)),  # few rows: what counts is how soon one is done
    )  # fmt: skip
    return out


@triton.jit
def _fetch(source, target, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < n), mask=at < n)


def fetch(source: Tensor, target: Tensor) -> None:
    """Copy page-locked host memory to the device by a kernel that reads it, so that a graph can hold that.

    A copy of its own cost the host 0.14 ms a step where it was measured.
    """
    _fetch[(triton.cdiv(len(source), 256),)](source, target, len(source), BLOCK=256, num_warps=2)


@triton.jit
def _silu_mul(gate_up, out, d_ff, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < d_ff
    gate = tl.load(gate_up + row * 2 * d_ff + at, mask=inside, other=0.0)
    up = tl.load(gate_up + row * 2 * d_ff + d_ff + at, mask=inside, other=0.0)
    wide = gate.to(tl.float32)
    silu = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype)
    product = silu.to(tl.float32) * up.to(tl.float32)
    tl.store(out + row * d_ff + at, product.to(gate.dtype), mask=inside)


def silu_mul(gate_up: Tensor) -> Tensor:
    """Return silu(gate) * up of [n, 2 * d_ff]."""
    n, d_ff = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(n, d_ff)
    block = min(2048, triton.next_power_of_2(d_ff))
    _silu_mul[(n, triton.cdiv(d_ff, block))](gate_up, out, d_ff, BLOCK=block, num_warps=_warps(block))
    return out


@triton.jit
def rotated(first, second, cos, sin, kind: tl.constexpr, IN_FP32: tl.constexpr):
    """One half of a rotated pair, in fp32; families that rotate in bf16 round after every operation."""
    one, two = first * cos, second * sin
    if not IN_FP32:
        one, two = one.to(kind).to(tl.float32), two.to(kind).to(tl.float32)
    return (one + two).to(kind)


@triton.jit
def _rotate_and_store(
    qkv, pos, cos, sin, k_store, v_store, slots, n_rows, n_live, slot_stride, head_stride,
    H: tl.constexpr, K: tl.constexpr, D: tl.constexpr, IN_FP32: tl.constexpr, HEADS: tl.constexpr,
    STORES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    canvas, local = row // n_rows, row % n_rows
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]  # q heads, k heads, v heads
    half = tl.arange(0, D // 2)[None, :]
    at = tl.load(pos + row)
    inside = (head < H + (2 if STORES else 1) * K) & (half < D)
    here = qkv + row * (H + 2 * K) * D + head * D + half
    old_first = tl.load(here, mask=inside, other=0.0)
    old_second = tl.load(here + D // 2, mask=inside, other=0.0)
    kind: tl.constexpr = old_first.dtype
    first, second = old_first.to(tl.float32), old_second.to(tl.float32)
    turns = head < H + K  # values are not rotated
    c = tl.load(cos + at * D + half).to(tl.float32)
    s = tl.load(sin + at * D + half).to(tl.float32)
    new_first = tl.where(turns, rotated(first, -second, c, s, kind, IN_FP32), old_first)
    new_second = tl.where(turns, rotated(second, first, c, s, kind, IN_FP32), old_second)
    in_place = inside & turns
    tl.store(here, new_first, mask=in_place)
    tl.store(here + D // 2, new_second, mask=in_place)
    if STORES:
        is_live = local < n_live
        home = tl.load(slots + canvas) * slot_stride + at * D + half
        is_key = is_live & (head >= H) & (head < H + K)
        key = k_store + home + (head - H) * head_stride
        tl.store(key, new_first, mask=is_key)
        tl.store(key + D // 2, new_second, mask=is_key)
        is_value = is_live & (head >= H + K) & inside
        value = v_store + home + (head - H - K) * head_stride
        tl.store(value, new_first, mask=is_value)
        tl.store(value + D // 2, new_second, mask=is_value)


class Rotation(NamedTuple):
    """Where rows stand, how that turns them, and where the keys and values of live rows go."""

    pos: Tensor  # [S, T]
    cos: Tensor  # whole tables [positions, D]
    sin: Tensor
    stores: tuple[Tensor, Tensor] | None  # of keys and of values, [slots, K, N, D]; None: nothing is stored
    slots: Tensor  # [S]
    n_live: int
    n_heads: int
    in_fp32: bool


def rotate_and_store(qkv: Tensor, how: Rotation) -> None:
    """Rotate q and k of [S * T, (H + 2K) * D] in place; put keys and values of live rows into the stores."""
    pos, cos, sin, stores, slots, n_live, n_heads, in_fp32 = how
    n_canvases, n_rows = pos.shape
    d = cos.shape[1]
    k_heads = (qkv.shape[1] // d - n_heads) // 2
    n_met = n_heads + (2 if stores else 1) * k_heads  # values only have to be stored
    heads = min(max(1, 2 * PAIRS_AT_ONCE // d), triton.next_power_of_2(n_met))
    k_store, v_store = stores or (qkv, qkv)
    _rotate_and_store[(n_canvases * n_rows, triton.cdiv(n_met, heads))](
        qkv, pos, cos, sin, k_store, v_store, slots, n_rows, n_live, k_store.stride(0), k_store.stride(1),
        H=n_heads, K=k_heads, D=d, IN_FP32=in_fp32, HEADS=heads, STORES=stores is not None,
        num_warps=_warps(heads * d),
    )  # fmt: skip


def _warps(n: int) -> int:
    """Return how many warps a program over n numbers gets."""
    return min(8, max(1, n // PER_WARP))
