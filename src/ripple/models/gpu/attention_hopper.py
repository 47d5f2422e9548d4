"""Attention of few rows on Hopper GPUs: launches attention_hopper.cu, equal to attention_kernel.py."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch

from ripple.models.base import ForwardInputs
from ripple.models.gpu import hopper
from ripple.models.gpu.attention_kernel import LOG2_E

Tensor = torch.Tensor
WIDTH = 128  # of a head
MOST_PARTS, LEAST_KEYS = 8, 128  # a part is a block of a cluster; smaller ones cost more than they save


class Build(NamedTuple):
    """How the kernel is built."""

    groups: int  # consumer warpgroups of a block, 64 rows each; one more is the producer
    keys: int  # of a tile
    stages: int  # tiles in flight
    blocks: int  # resident on a multiprocessor at once

    @property
    def n_threads(self) -> int:
        """Threads of a block."""
        return 128 * (self.groups + 1)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: stages of keys and values with their barriers, and queries."""
        return self.stages * (4 * self.keys * 128 + 32) + 64 * self.groups * WIDTH * 2

    def n_tiles(self, n_rows: int) -> int:
        """Return how many blocks share the rows of a key head."""
        return -(-n_rows // (64 * self.groups))


SMALL = Build(1, 64, 2, 2)  # the faster one while there are few blocks
LARGE = Build(3, 64, 5, 1)  # reads keys less often


def fits(qkv: Tensor, keys: Tensor, limit: Tensor | None = None) -> bool:
    """Say whether this kernel can take these rows and keys; it knows no limits."""
    suits = limit is None and qkv.dtype == torch.bfloat16 and keys.shape[3] == WIDTH
    return suits and hopper.is_hopper(qkv.device)


def attend(
    qkv: Tensor, keys: Tensor, values: Tensor, slots: Tensor, key_len: Tensor, inputs: ForwardInputs,
    n_heads: int, first_row: int = 0, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Attend the rows of each canvas from `first_row` on; return [S * T, H * D], or fill `out`."""
    n_canvases, n_rows = inputs.pos.shape
    n_slots, k_heads, n_positions, d = keys.shape
    if out is None:
        out = qkv.new_empty(n_canvases * n_rows, n_heads * d)
    heads_per_key, n_heads_total = n_heads // k_heads, k_heads * n_canvases
    n_query_rows = (n_rows - first_row) * heads_per_key
    build = _build(qkv.device, n_query_rows, n_heads_total)
    n_tiles = build.n_tiles(n_query_rows)
    parts = _n_parts(qkv.device, build, heads_per_key, n_tiles * n_heads_total, inputs.n_keys)
    part_len = -(-inputs.n_keys // (parts * build.keys)) * build.keys
    strides = tuple(2 * keys.stride(i) for i in (2, 1, 0))
    k_map, v_map = (
        hopper.tensor_map(stored, (d, n_positions, k_heads, n_slots), strides, (64, build.keys, 1, 1))
        for stored in (keys, values)
    )
    own_map = hopper.tensor_map(qkv, (qkv.shape[1], len(qkv)), (2 * qkv.shape[1],), (64, build.keys))
    # Neither is read without branches.
    hide, own_len = (slots if t is None else t for t in (inputs.hide, inputs.own_len))
    arguments = (
        k_map, v_map, own_map, qkv, out, slots, key_len, hide, own_len, d**-0.5 * LOG2_E, n_rows,
        inputs.n_live, max(1, inputs.branch_len), n_heads, k_heads, part_len, first_row,
    )  # fmt: skip
    kernel = _kernel(qkv.device, build, parts, heads_per_key)
    grid = (n_tiles, n_heads_total, parts)
    hopper.launch(kernel, qkv.device, grid, build.n_threads, build.shared_bytes, *arguments)
    return out


def _build(device: torch.device, n_rows: int, n_heads: int) -> Build:
    """Return the build for so many rows of each of so many key heads."""
    n_blocks = SMALL.n_tiles(n_rows) * n_heads
    return SMALL if n_blocks <= hopper.n_multiprocessors(device) else LARGE


@lru_cache(maxsize=1024)
def _n_parts(device: torch.device, build: Build, heads_per_key: int, n_blocks: int, n_keys: int) -> int:
    """Return into how many parts the keys are split, so that all clusters are resident at once."""
    room = build.blocks * hopper.n_multiprocessors(device)
    parts = min(room // n_blocks, MOST_PARTS, n_keys // LEAST_KEYS)
    while parts > 1:
        kernel = _kernel(device, build, parts, heads_per_key)
        if hopper.n_clusters(kernel, parts, build.n_threads, build.shared_bytes) >= n_blocks:
            return parts
        parts -= 1
    return 1


@lru_cache(maxsize=64)
def _kernel(device: torch.device, build: Build, parts: int, heads_per_key: int) -> Any:
    return hopper.compiled("attend", source(build, parts, heads_per_key), device, build.shared_bytes)


def source(build: Build, parts: int, heads_per_key: int) -> str:
    """Return the CUDA source of one variant."""
    return hopper.source(
        "attention_hopper", PARTS=parts, HEADS_PER_KEY=heads_per_key, WIDTH=WIDTH, GROUPS=build.groups,
        KEYS=build.keys, STAGES=build.stages, BLOCKS=build.blocks,
        QK_MMA=hopper.wgmma(build.keys, "s", "q", "keys", "accumulate"),
        PV_MMA=hopper.wgmma(WIDTH, "o", "p[]", "values", "1", mn_major=True),
    )  # fmt: skip
