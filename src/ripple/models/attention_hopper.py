"""Attention of few rows on stored keys, on Hopper GPUs: attention_hopper.cu, equal to attention_kernel.py."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from ripple.models import hopper
from ripple.models.attention_kernel import LOG2_E
from ripple.models.forward import Forward

Tensor = torch.Tensor
GROUPS, KEYS, WIDTH = 3, 64, 128  # warpgroups of a block, a tile's keys, a head
ROWS = 64 * GROUPS  # of a block
MOST_PARTS, LEAST_KEYS = 8, 128  # parts are blocks of a cluster; smaller ones cost more than they save
STAGES = 5
N_THREADS = 128 * (GROUPS + 1)
SHARED_BYTES = hopper.ALIGNED + STAGES * (4 * KEYS * 128 + 16) + ROWS * WIDTH * 2


def fits(qkv: Tensor, k_store: Tensor, fwd: Forward, n_heads: int) -> bool:
    """Say whether this kernel can take a forward on stored keys, and is the faster one.

    A single tile with little in it is all waiting, where the other kernel is as good.
    """
    rows = fwd.pos.shape[1] * (n_heads // k_store.shape[1])
    n_heads_here = k_store.shape[1] * len(fwd.pos)
    return (
        fwd.slots is not None
        and qkv.dtype == torch.bfloat16
        and k_store.shape[3] == WIDTH
        and hopper.is_hopper(qkv.device)
        and (rows > 64 or 2 * n_heads_here > hopper.n_multiprocessors(qkv.device))
    )


def attend(
    qkv: Tensor, k_store: Tensor, v_store: Tensor, slots: Tensor, key_len: Tensor, fwd: Forward, n_heads: int
) -> Tensor:
    """Attend all rows; return [S * T, H * D]."""
    n_canvases, n_rows = fwd.pos.shape
    n_slots, k_heads, n_positions, d = k_store.shape
    out = qkv.new_empty(n_canvases * n_rows, n_heads * d)
    n_tiles = _n_tiles(fwd, n_heads, k_store)
    parts = _n_parts(qkv.device, n_heads // k_heads, n_tiles * k_heads * n_canvases, fwd.n_keys)
    part_len = -(-fwd.n_keys // (parts * KEYS)) * KEYS
    strides = tuple(2 * k_store.stride(i) for i in (2, 1, 0))
    k_map, v_map = (
        hopper.tensor_map(store, (d, n_positions, k_heads, n_slots), strides, (64, KEYS, 1, 1))
        for store in (k_store, v_store)
    )
    own_map = hopper.tensor_map(qkv, (qkv.shape[1], len(qkv)), (2 * qkv.shape[1],), (64, KEYS))
    # Read only where there are branches.
    hidden, own_len = (slots if t is None else t for t in (fwd.hidden, fwd.own_len))
    values = (
        k_map, v_map, own_map, qkv, out, slots, key_len, hidden, own_len, d**-0.5 * LOG2_E, n_rows,
        fwd.n_live, max(1, fwd.branch_len), n_heads, k_heads, part_len,
    )  # fmt: skip
    kernel = _kernel(qkv.device, parts, n_heads // k_heads)
    grid = (n_tiles, k_heads * n_canvases, parts)
    hopper.launch(kernel, qkv.device, grid, N_THREADS, SHARED_BYTES, *values)
    return out


def _n_tiles(fwd: Forward, n_heads: int, k_store: Tensor) -> int:
    return -(-fwd.pos.shape[1] * (n_heads // k_store.shape[1]) // ROWS)


@lru_cache(maxsize=1024)
def _n_parts(device: torch.device, heads_per_key: int, n_blocks: int, n_keys: int) -> int:
    """Return into how many parts keys are cut, so that all clusters run at once."""
    parts = min(hopper.n_multiprocessors(device) // n_blocks, MOST_PARTS, n_keys // LEAST_KEYS)
    while parts > 1:
        kernel = _kernel(device, parts, heads_per_key)
        if hopper.n_clusters(kernel, parts, N_THREADS, SHARED_BYTES) >= n_blocks:
            return parts
        parts -= 1
    return 1


@lru_cache(maxsize=64)
def _kernel(device: torch.device, parts: int, heads_per_key: int) -> Any:
    return hopper.compiled("attend", source(parts, heads_per_key), device, SHARED_BYTES)


def source(parts: int, heads_per_key: int) -> str:
    """Return the CUDA source of one variant."""
    return hopper.source(
        "attention_hopper", PARTS=parts, HEADS_PER_KEY=heads_per_key, GROUPS=GROUPS, KEYS=KEYS, WIDTH=WIDTH,
        STAGES=STAGES,
        SCORE=hopper.wgmma(KEYS, "s", "q", "keys", "adds"),
        WEIGH=hopper.wgmma(WIDTH, "o", "p[]", "values", "1", upright=True),
    )  # fmt: skip
