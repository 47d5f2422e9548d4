"""Triton kernels of the GPU path: everything between two matrix products, one launch each.

Each computes what the plain code does (`rms_norm` and `_rotate` in transformer.py, `write` in kv_store.py),
rounds where that rounds, and is tested equal to it. Attention has its own file, attention_kernel.py.

Shapes: S canvases of T rows each (R live, then branches), H query heads, K key heads, D head_dim.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl

Tensor = torch.Tensor
ELEMENTS_PER_WARP = 512  # so that programs of narrow models get few warps and more of them run at once
PAIRS_PER_PROGRAM = 1024  # that one program rotates


@triton.jit
def _add_norm(
    x, parts, weight, out, n, d, eps, PARTS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    mask = col < d
    gain = tl.load(weight + col, mask=mask, other=0.0)  # issued early to hide DRAM latency
    value = tl.load(x + row * d + col, mask=mask, other=0.0)
    value_fp32 = value.to(tl.float32)
    if PARTS > 0:
        for part in tl.static_range(PARTS):
            value_fp32 += tl.load(parts + (part * n + row) * d + col, mask=mask, other=0.0)
        rounded = value_fp32.to(value.dtype)
        tl.store(x + row * d + col, rounded, mask=mask)
        value_fp32 = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value_fp32 * value_fp32) / d + eps)
    normed = (value_fp32 * scale).to(value.dtype)
    scaled = normed.to(tl.float32) * gain.to(tl.float32)
    tl.store(out + row * d + col, scaled.to(value.dtype), mask=mask)


def add_norm(x: Tensor, parts: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """Add parts [p, n, d] in fp32, if any, to x [n, d] in place; return its rows normalised and scaled."""
    out = torch.empty_like(x)
    n, d = x.shape
    n_parts = 0 if parts is None else len(parts)
    block = triton.next_power_of_2(d)
    _add_norm[(n,)](
        x, x if parts is None else parts, weight, out, n, d, eps, PARTS=n_parts, BLOCK=block,
        num_warps=min(16, 2 * _warps(block)),  # few rows: latency of one program counts
    )  # fmt: skip
    return out


@triton.jit
def _fetch(source, target, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + i, tl.load(source + i, mask=i < n), mask=i < n)


def fetch(source: Tensor, target: Tensor) -> None:
    """Copy page-locked host memory to the device with a kernel, so that a CUDA graph can hold the copy.

    A separate copy before the graph cost the host 0.14 ms a step where it was measured.
    """
    _fetch[(triton.cdiv(len(source), 256),)](source, target, len(source), BLOCK=256, num_warps=2)


@triton.jit
def _silu_mul(gate_up, out, d_ff, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = col < d_ff
    gate = tl.load(gate_up + row * 2 * d_ff + col, mask=mask, other=0.0)
    up = tl.load(gate_up + row * 2 * d_ff + d_ff + col, mask=mask, other=0.0)
    gate_fp32 = gate.to(tl.float32)
    silu = (gate_fp32 / (1.0 + tl.exp(-gate_fp32))).to(gate.dtype)
    product = silu.to(tl.float32) * up.to(tl.float32)
    tl.store(out + row * d_ff + col, product.to(gate.dtype), mask=mask)


def silu_mul(gate_up: Tensor) -> Tensor:
    """Return silu(gate) * up of [n, 2 * d_ff]."""
    n, d_ff = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(n, d_ff)
    block = min(2048, triton.next_power_of_2(d_ff))
    _silu_mul[(n, triton.cdiv(d_ff, block))](gate_up, out, d_ff, BLOCK=block, num_warps=_warps(block))
    return out


@triton.jit
def rotated(first, second, cos, sin, dtype: tl.constexpr, IN_FP32: tl.constexpr):
    """One half of a rotated pair, in fp32; families that rotate in bf16 round after every operation."""
    one, two = first * cos, second * sin
    if not IN_FP32:
        one, two = one.to(dtype).to(tl.float32), two.to(dtype).to(tl.float32)
    return (one + two).to(dtype)


@triton.jit
def normed(x, scale, gain_at, mask, dtype: tl.constexpr):
    """Part of a normalised head in fp32, rounded where `rms_norm` rounds."""
    gain = tl.load(gain_at, mask=mask, other=0.0).to(tl.float32)
    return ((x * scale).to(dtype).to(tl.float32) * gain).to(dtype).to(tl.float32)


@triton.jit
def _loaded(at, channel, mask, row_scale, channel_scale, bias, IS_FP8: tl.constexpr, HAS_BIAS: tl.constexpr):
    """Part of a product; sums of an fp8 product times the scales of their row and channels, plus the bias."""
    x = tl.load(at, mask=mask, other=0.0)
    if IS_FP8:
        y = x.to(tl.float32) * (tl.load(row_scale) * tl.load(channel_scale + channel, mask=mask, other=0.0))
        if HAS_BIAS:
            y += tl.load(bias + channel, mask=mask, other=0.0).to(tl.float32)
        x = y.to(x.dtype)
    return x


@triton.jit
def _times(x, factor):
    return (x.to(tl.float32) * factor).to(x.dtype)


@triton.jit
def _store(k_at, v_at, part, head, mask, is_live, H: tl.constexpr, K: tl.constexpr):
    tl.store(k_at, part, mask=is_live & (head >= H) & (head < H + K))
    tl.store(v_at, part, mask=is_live & (head >= H + K) & mask)


@triton.jit
def _rotate_and_store(
    qkv, pos, cos, sin, k_store, v_store, slots, n_rows, n_live, slot_stride, head_stride, q_norm, k_norm,
    eps, q_scale, row_scale, channel_scale, bias, H: tl.constexpr, K: tl.constexpr, D: tl.constexpr,
    R: tl.constexpr, IN_FP32: tl.constexpr, HEADS: tl.constexpr, STORES: tl.constexpr, NORMS: tl.constexpr,
    SCALES: tl.constexpr, IS_FP8: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """Rotate the first R numbers of each head of q and k; keys and values may go into the stores."""
    row = tl.program_id(0).to(tl.int64)
    canvas, canvas_row = row // n_rows, row % n_rows
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]  # q heads, k heads, v heads
    col = tl.arange(0, R // 2)[None, :]  # of a half
    p = tl.load(pos + row)
    n_heads: tl.constexpr = H + (2 if STORES or IS_FP8 else 1) * K
    mask = (head < n_heads) & (col < R)
    qkv_at, at = qkv + row * (H + 2 * K) * D + head * D + col, head * D + col
    by = row_scale + row
    old_first = _loaded(qkv_at, at, mask, by, channel_scale, bias, IS_FP8, HAS_BIAS)
    old_second = _loaded(qkv_at + R // 2, at + R // 2, mask, by, channel_scale, bias, IS_FP8, HAS_BIAS)
    dtype: tl.constexpr = old_first.dtype
    first, second = old_first.to(tl.float32), old_second.to(tl.float32)
    rotates, changes = head < H + K, (head < H + K) | IS_FP8  # values are not rotated
    if R < D:  # the rest of the head
        rest = R + tl.arange(0, D - R)[None, :]
        rest_mask = (head < n_heads) & (rest < D)
        rest_at = qkv + row * (H + 2 * K) * D + head * D + rest
        new_rest = _loaded(rest_at, head * D + rest, rest_mask, by, channel_scale, bias, IS_FP8, HAS_BIAS)
    if NORMS:
        square = tl.sum(first * first, 1) + tl.sum(second * second, 1)
        if R < D:
            square += tl.sum(new_rest.to(tl.float32) * new_rest.to(tl.float32), 1)
        scale = tl.rsqrt(square / D + eps)[:, None]
        gain_at = tl.where(head < H, q_norm + col, k_norm + col)
        first = normed(first, scale, gain_at, rotates & mask, dtype)
        second = normed(second, scale, gain_at + R // 2, rotates & mask, dtype)
        if R < D:
            gain_at = tl.where(head < H, q_norm + rest, k_norm + rest)
            third = normed(new_rest.to(tl.float32), scale, gain_at, rotates & rest_mask, dtype)
            new_rest = tl.where(rotates, third.to(dtype), new_rest)
    c = tl.load(cos + p * R + col).to(tl.float32)
    s = tl.load(sin + p * R + col).to(tl.float32)
    new_first = tl.where(rotates, rotated(first, -second, c, s, dtype, IN_FP32), old_first)
    new_second = tl.where(rotates, rotated(second, first, c, s, dtype, IN_FP32), old_second)
    if SCALES:
        factor = tl.where(head < H, tl.load(q_scale + p).to(tl.float32), 1.0)
        new_first, new_second = _times(new_first, factor), _times(new_second, factor)
        if R < D:
            new_rest = _times(new_rest, factor)
    tl.store(qkv_at, new_first, mask=mask & changes)
    tl.store(qkv_at + R // 2, new_second, mask=mask & changes)
    if R < D and (NORMS or SCALES or IS_FP8):
        tl.store(rest_at, new_rest, mask=rest_mask & changes)
    if STORES:
        is_live = canvas_row < n_live
        offset = tl.load(slots + canvas) * slot_stride + p * D
        k_at = k_store + offset + (head - H) * head_stride
        v_at = v_store + offset + (head - H - K) * head_stride
        _store(k_at + col, v_at + col, new_first, head, mask, is_live, H, K)
        _store(k_at + R // 2 + col, v_at + R // 2 + col, new_second, head, mask, is_live, H, K)
        if R < D:
            _store(k_at + rest, v_at + rest, new_rest, head, rest_mask, is_live, H, K)


class Rotation(NamedTuple):
    """The rotary embedding of a forward's rows, and where the keys and values of live rows are stored."""

    pos: Tensor  # [S, T]
    cos: Tensor  # whole tables [positions, rotary_dim]
    sin: Tensor
    stores: tuple[Tensor, Tensor] | None  # of keys and of values, [slots, K, N, D]; None: nothing is stored
    slots: Tensor  # [S]
    n_live: int
    n_heads: int
    head_dim: int
    in_fp32: bool
    norms: tuple[Tensor, Tensor] | None = None  # weights [D] of the queries' and of the keys' norm
    eps: float = 0.0  # of the norms
    query_scale: Tensor | None = None  # [positions]
    # Of the rows [S * T] and channels of an fp8 product, and the bias that it still lacks.
    scales: tuple[Tensor, Tensor, Tensor | None] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether whole heads are rotated and nothing else is done to them."""
        return self.norms is None and self.query_scale is None and self.cos.shape[1] == self.head_dim


def rotate_and_store(qkv: Tensor, rotation: Rotation) -> None:
    """Rotate q and k of [S * T, (H + 2K) * D] in place; put keys and values of live rows into the stores.

    Where there are norms, q and k are normalised per head first.
    """
    pos, cos, sin, stores, slots, n_live, n_heads, d, in_fp32, norms, eps, scale, scales = rotation
    n_canvases, n_rows = pos.shape
    k_heads = (qkv.shape[1] // d - n_heads) // 2
    n_heads_total = n_heads + (2 if stores or scales else 1) * k_heads  # v heads only where they change
    heads = min(max(1, 2 * PAIRS_PER_PROGRAM // d), triton.next_power_of_2(n_heads_total))
    k_store, v_store = stores or (qkv, qkv)
    q_norm, k_norm = norms or (cos, cos)
    row_scale, channel_scale, bias = scales or (cos, cos, None)
    _rotate_and_store[(n_canvases * n_rows, triton.cdiv(n_heads_total, heads))](
        qkv, pos, cos, sin, k_store, v_store, slots, n_rows, n_live, k_store.stride(0), k_store.stride(1),
        q_norm, k_norm, eps, cos if scale is None else scale, row_scale, channel_scale,
        cos if bias is None else bias, H=n_heads, K=k_heads, D=d, R=cos.shape[1], IN_FP32=in_fp32,
        HEADS=heads, STORES=stores is not None, NORMS=norms is not None, SCALES=scale is not None,
        IS_FP8=scales is not None, HAS_BIAS=bias is not None, num_warps=_warps(heads * d),
    )  # fmt: skip


@lru_cache(maxsize=8)
def overlaps(device: torch.device) -> bool:
    """Say whether a kernel may start while the one before it ends (programmatic dependent launch)."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def _warps(n: int) -> int:
    """Return how many warps a program over n elements gets."""
    return min(8, max(1, n // ELEMENTS_PER_WARP))
