"""dKV-Cache, the decode variant: a token's keys are stored one forward after its commit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ripple.caches.base import Cache, CacheState
from ripple.canvas import Ints
from ripple.fields import param


@dataclass(frozen=True)
class DkvCache(Cache):
    """Freeze a token one forward after it was committed; recompute every mask.

    The forward that follows a commit computes the new token in its place for the first time and stores its
    keys; the one after it reads them. Prompt tokens count as committed. The first two forwards of a block
    recompute everything, and so does every `refresh`-th. A branch of a packed lookahead recomputes the
    whole block.
    """

    name = "dkv"
    paper = "dKV-Cache, arXiv 2505.15781"
    stores_every_step = True

    refresh: int | None = param(
        8, "recompute everything at every n-th forward of a block; the paper uses 4 to 16", within="[1, inf)"
    )

    def is_refresh(self, state: CacheState) -> bool:
        """Say whether this is one of the block's first two forwards, or a refresh."""
        return state.step < 2 or super().is_refresh(state)

    def step_positions(self, state: CacheState) -> Ints:
        """Return the masks, the tokens no forward has seen in their place, and the rows that are needed."""
        is_live = state.is_mask | (state.stored_token != state.canvas.ids)
        is_live[state.needed] = True
        return np.flatnonzero(is_live)
