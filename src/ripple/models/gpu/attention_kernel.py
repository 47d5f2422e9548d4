"""Attention of live rows and isolated branches in one Triton launch, without a mask in memory.

A tile of queries attends to the canvas's keys, read from the key store, then (if it holds branch rows) to the
keys of its own branches, read from the q-k-v product. What a row may see follows from three or four small
integers per row, so nothing of size rows x keys is ever written. With few rows and many keys the keys are
split among programs (split-KV) and the parts merged by their log-sum-exps.

Grouped queries: the H / K query heads of a key head are rows of the same tile.
Shapes: S canvases, T = R + G * W rows each, N keys, D head_dim.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ripple.models.base import ForwardInputs

Tensor = torch.Tensor
PROGRAMS_WANTED = 132  # one per multiprocessor of an H200: below this the keys are split
LOG2_E = 1.4426950408889634  # scores are scaled by it, so that exp2 can be used
MERGED_ROWS = 8  # rows of one head whose parts one program merges
LEAST_KEYS = 128  # a part smaller than this costs more to merge than it saves


class Tile(NamedTuple):
    """How much one program holds at a time."""

    rows: int
    keys: int
    warps: int
    stages: int  # tiles of keys in flight


@triton.jit
def online_softmax_step(
    q, k, v, sees, row_max, row_sum, acc, scale, MASKED: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """Add one tile of keys to the running softmax: maximum, sum, weighted values."""
    score = tl.dot(q, k, input_precision=PRECISION) * scale
    if MASKED:
        score = tl.where(sees, score, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(score, 1))
    base = tl.where(new_max == float("-inf"), 0.0, new_max)  # a row that has seen no key yet
    p = tl.exp2(score - base[:, None])
    rescale = tl.exp2(row_max - base)
    row_sum = row_sum * rescale + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision=PRECISION)
    return new_max, row_sum, acc


@triton.jit
def _attend(
    qkv, keys, values, out, part_out, part_lse, slots, key_len, hide, own_len, scale,
    n_rows, n_live, first_row, w, part_len, slot_stride, head_stride, n_canvases, limit,
    H: tl.constexpr, K: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    STEP: tl.constexpr, PARTS: tl.constexpr, PRECISION: tl.constexpr, HAS_LIMIT: tl.constexpr,
):  # fmt: skip
    # STEP: elements from one position of the keys to the next
    GROUP: tl.constexpr = H // K
    tile, kv_head = tl.program_id(0), tl.program_id(1)
    canvas, part = (tl.program_id(2) // PARTS).to(tl.int64), tl.program_id(2) % PARTS
    flat = first_row * GROUP + tile * BM + tl.arange(0, BM)  # (row, query head of the group)
    exists = flat < n_rows * GROUP
    flat = tl.minimum(flat, n_rows * GROUP - 1)
    row, head = flat // GROUP, kv_head * GROUP + flat % GROUP
    batch_row = canvas * n_rows + row
    d = tl.arange(0, D)
    width: tl.constexpr = (H + 2 * K) * D
    q = tl.load(qkv + (batch_row * width + head * D)[:, None] + d[None, :])
    in_branch = row >= n_live
    hide_at = hide + (canvas * (n_rows - n_live) + row - n_live) * 2
    lo = tl.load(hide_at, mask=in_branch, other=0)
    hi = tl.load(hide_at + 1, mask=in_branch, other=0)
    has_branch = tl.max(row) >= n_live

    row_max = tl.full([BM], float("-inf"), tl.float32)
    row_sum = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    n_keys = tl.load(key_len + canvas).to(tl.int32)
    store_offset = tl.load(slots + canvas) * slot_stride + kv_head * head_stride
    start, stop = part * part_len, tl.minimum((part + 1) * part_len, n_keys)
    row_limit = lo
    if HAS_LIMIT:
        row_limit = tl.load(limit + batch_row)
        stop = tl.minimum(stop, tl.max(row_limit).to(tl.int32))  # no row of this tile sees more
    row_max, row_sum, acc = _attend_canvas(
        q, keys + store_offset, values + store_offset, start, stop, lo, hi, row_limit, has_branch,
        row_max, row_sum, acc, scale, STEP, D, BN, PRECISION, HAS_LIMIT,
    )  # fmt: skip
    if has_branch & (part == PARTS - 1):
        own = qkv + (canvas * n_rows + n_live) * width + (H + kv_head) * D
        branch = tl.where(in_branch, (row - n_live) // w, -1)
        row_max, row_sum, acc = _attend_own_branch(
            q, own, own_len + canvas * ((n_rows - n_live) // w), branch, w, row_max, row_sum, acc, scale,
            K, D, width, BN, PRECISION,
        )  # fmt: skip
    acc = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    if PARTS == 1:
        to = out + (batch_row * H + head)[:, None] * D + d[None, :]
        tl.store(to, acc.to(q.dtype), mask=exists[:, None])
    else:
        n_part_rows = n_rows - first_row
        at = ((part * n_canvases + canvas) * n_part_rows + row - first_row) * H + head
        tl.store(part_out + at[:, None] * D + d[None, :], acc, mask=exists[:, None])
        tl.store(part_lse + at, row_max + tl.log2(row_sum), mask=exists)


@triton.jit
def _attend_range(
    q, keys, values, start, stop, end, lo, hi, row_limit, row_max, row_sum, acc, scale, MASKED: tl.constexpr,
    STEP: tl.constexpr, D: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr, HAS_LIMIT: tl.constexpr,
):  # fmt: skip
    """Attend to the tiles of keys from start to stop; unmasked ones must lie whole below `end`."""
    d, n = tl.arange(0, D), tl.arange(0, BN)
    for at in range(start, stop, BN):
        j = at + n
        if MASKED:
            exists = j < end
            k = tl.load(keys + j[None, :] * STEP + d[:, None], mask=exists[None, :], other=0.0)
            v = tl.load(values + j[:, None] * STEP + d[None, :], mask=exists[:, None], other=0.0)
            sees = exists[None, :] & ((j[None, :] < lo[:, None]) | (j[None, :] >= hi[:, None]))
            if HAS_LIMIT:
                sees &= j[None, :] < row_limit[:, None]
            row_max, row_sum, acc = online_softmax_step(
                q, k, v, sees, row_max, row_sum, acc, scale, True, PRECISION
            )
        else:
            k = tl.load(keys + j[None, :] * STEP + d[:, None])
            v = tl.load(values + j[:, None] * STEP + d[None, :])
            row_max, row_sum, acc = online_softmax_step(
                q, k, v, None, row_max, row_sum, acc, scale, False, PRECISION
            )
    return row_max, row_sum, acc


@triton.jit
def _attend_canvas(
    q, keys, values, start, stop, lo, hi, row_limit, has_branch, row_max, row_sum, acc, scale,
    STEP: tl.constexpr, D: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr, HAS_LIMIT: tl.constexpr,
):  # fmt: skip
    """Attend to stored keys start ... stop-1; without branches and limits only the last tile needs a mask."""
    if HAS_LIMIT:
        has_branch = True
    whole = start + tl.where(has_branch, 0, tl.maximum(stop - start, 0) // BN * BN)
    row_max, row_sum, acc = _attend_range(
        q, keys, values, start, whole, stop, lo, hi, row_limit, row_max, row_sum, acc, scale, False,
        STEP, D, BN, PRECISION, HAS_LIMIT,
    )  # fmt: skip
    return _attend_range(
        q, keys, values, whole, stop, stop, lo, hi, row_limit, row_max, row_sum, acc, scale, True,
        STEP, D, BN, PRECISION, HAS_LIMIT,
    )  # fmt: skip


@triton.jit
def _attend_own_branch(
    q, own, own_len, branch, w, row_max, row_sum, acc, scale,
    K: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Attend to the rows of the tile's branches; each row sees only the branch it belongs to."""
    d, n = tl.arange(0, D), tl.arange(0, BN)
    from_row, to_row = tl.maximum(tl.min(branch), 0) * w, (tl.max(branch) + 1) * w
    for at in range(from_row, to_row, BN):
        c = at + n
        inside = c < to_row
        k = tl.load(own + c[None, :] * WIDTH + d[:, None], mask=inside[None, :], other=0.0)
        v = tl.load(own + K * D + c[:, None] * WIDTH + d[None, :], mask=inside[:, None], other=0.0)
        exists = inside & (c % w < tl.load(own_len + c // w, mask=inside, other=0))
        sees = exists[None, :] & ((c // w)[None, :] == branch[:, None])
        row_max, row_sum, acc = online_softmax_step(
            q, k, v, sees, row_max, row_sum, acc, scale, True, PRECISION
        )
    return row_max, row_sum, acc


@triton.jit
def _merge(
    part_out, part_lse, out, n_flat, n_part_rows, n_rows, first_row,
    H: tl.constexpr, PARTS: tl.constexpr, D: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Combine the parts of some (row, head)s, weighted by their log-sum-exps."""
    at = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    exists = at < n_flat
    d = tl.arange(0, D)
    lse_max = tl.full([BM], float("-inf"), tl.float32)
    for p in tl.static_range(PARTS):
        lse_max = tl.maximum(lse_max, tl.load(part_lse + p * n_flat + at, mask=exists, other=0.0))
    merged, total = tl.zeros([BM, D], tl.float32), tl.zeros([BM], tl.float32)
    for p in tl.static_range(PARTS):
        weight = tl.exp2(tl.load(part_lse + p * n_flat + at, mask=exists, other=0.0) - lse_max)
        part_at = part_out + (p * n_flat + at)[:, None] * D + d[None, :]
        merged += weight[:, None] * tl.load(part_at, mask=exists[:, None], other=0.0)
        total += weight
    row, head = at // H, at % H
    batch_row = row // n_part_rows * n_rows + row % n_part_rows + first_row
    to = out + ((batch_row * H + head) * D)[:, None] + d[None, :]
    tl.store(to, (merged / total[:, None]).to(out.dtype.element_ty), mask=exists[:, None])


def attend(
    qkv: Tensor, keys: Tensor, values: Tensor, slots: Tensor, key_len: Tensor, inputs: ForwardInputs,
    n_heads: int, first_row: int = 0, out: Tensor | None = None, tile: Tile | None = None,
    n_programs_wanted: int | None = None,
) -> Tensor:  # fmt: skip
    """Attend the rows of each canvas from `first_row` on; return [S * T, H * D], or fill `out`.

    `qkv` is [S * T, (H + 2K) * D], already rotated; keys and values are [slots, K, N, D], strided alike, and
    already hold those of the live rows. Branch keys are read from `qkv`. `tile` and the number of programs
    are for tuning.
    """
    n_canvases, n_rows = inputs.pos.shape
    _, k_heads, _, d = keys.shape
    group = n_heads // k_heads
    tile = tile or tile_for((n_rows - first_row) * group, k_heads * n_canvases, qkv.dtype)
    n_tiles = triton.cdiv((n_rows - first_row) * group, tile.rows)
    wanted = n_programs_wanted or PROGRAMS_WANTED
    n_programs = n_tiles * k_heads * n_canvases
    parts = 1
    while parts < 16 and n_programs * parts < wanted and inputs.n_keys >= 2 * parts * LEAST_KEYS:
        parts *= 2
    part_len = triton.cdiv(triton.cdiv(inputs.n_keys, parts), tile.keys) * tile.keys
    n_part_rows = n_rows - first_row
    n_flat = n_canvases * n_part_rows * n_heads
    if out is None:
        out = qkv.new_empty(n_canvases * n_rows, n_heads * d)
    part_out = torch.empty(parts * n_flat * d if parts > 1 else 0, device=qkv.device)
    part_lse = torch.empty(parts * n_flat if parts > 1 else 0, device=qkv.device)
    hide = own_len = slots  # neither is read without branches
    if inputs.hide is not None:
        assert inputs.own_len is not None, "the kernel needs every branch's length"
        hide, own_len = inputs.hide, inputs.own_len
    limit = slots if inputs.limit is None else inputs.limit  # not read without limits
    w = max(1, inputs.branch_len)
    _attend[(n_tiles, k_heads, n_canvases * parts)](
        qkv, keys, values, out, part_out, part_lse, slots, key_len, hide, own_len, d**-0.5 * LOG2_E,
        n_rows, inputs.n_live, first_row, w, part_len, keys.stride(0), keys.stride(1), n_canvases, limit,
        H=n_heads, K=k_heads, D=d, BM=tile.rows, BN=tile.keys, STEP=keys.stride(2), PARTS=parts,
        PRECISION="ieee" if qkv.dtype == torch.float32 else "tf32", HAS_LIMIT=inputs.limit is not None,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    if parts > 1:
        _merge[(triton.cdiv(n_flat, MERGED_ROWS),)](
            part_out, part_lse, out, n_flat, n_part_rows, n_rows, first_row, H=n_heads, PARTS=parts, D=d,
            BM=MERGED_ROWS, num_warps=2,
        )  # fmt: skip
    return out


def tile_for(n_query_rows: int, n_kv: int, dtype: torch.dtype) -> Tile:
    """Return the tile that was fastest for so many rows (`ripple bench tiles`); n_kv: key heads in all."""
    if dtype == torch.float32:
        return Tile(32, 32, 4, 1)
    if n_query_rows <= 32:
        return Tile(32, 64, 4, 3)
    if n_query_rows // 128 * n_kv >= 4 * PROGRAMS_WANTED:  # enough work for every multiprocessor
        return Tile(128, 64, 8, 3)
    return Tile(64, 64, 4, 3)
