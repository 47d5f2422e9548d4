"""The cache of models that attend block by block: prompt and finished blocks are stored once, exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ripple.caches.base import Cache, CacheState
from ripple.canvas import Ints


@dataclass(frozen=True)
class ExactCache(Cache):
    """Store prompt and finished blocks once; recompute the open block.

    Nothing before the open block sees it, so what is stored never changes, and tokens are those of no cache.
    The forward that opens a block also computes the finished one before it, with its final tokens, and stores
    that: no forward is spent on storing. It is exact because rows of the finished block do not see the new
    one, while rows of the new block see, in every layer, the keys that this same forward has just computed.
    """

    name = "exact"
    paper = "block diffusion, arXiv 2503.09573; the merged opening is this project's"
    needs_blocks = True

    def refresh_positions(self, state: CacheState) -> Ints:
        """Return what is not stored in its final form, up to the end of the open block."""
        return np.arange(state.stored_to, len(state.canvas.ids))

    def step_positions(self, state: CacheState) -> Ints:
        """Return the open block, its part of the prompt included."""
        return np.arange(state.block_start, len(state.canvas.ids))
