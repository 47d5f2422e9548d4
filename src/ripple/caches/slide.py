"""A cache for windows that slide: the prompt once, the window live, what the window has left frozen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ripple.caches.base import Cache, CacheState
from ripple.canvas import Ints
from ripple.fields import param


@dataclass(frozen=True)
class SlideCache(Cache):
    """Recompute the window and what it has just left; freeze the rest.

    The request's first forward computes everything. A token that the window leaves behind is recomputed
    once more, with itself and everything to its left in place, and frozen by that. Masks to the right of
    the window rest as they were when everything was last computed. Other decoders' blocks are windows, too.
    """

    name = "slide"
    paper = "this project"
    stores_every_step = True

    refresh: int | None = param(None, "recompute everything at every n-th forward", within="[1, inf)")

    def is_refresh(self, state: CacheState) -> bool:
        """Say whether this is the request's first forward, or a refresh."""
        return state.is_first or (self.refresh is not None and state.forwards % self.refresh == 0)

    def step_positions(self, state: CacheState) -> Ints:
        """Return the last window's start up to this window's end, and tokens no forward has seen in place."""
        is_live = (state.stored_token != state.canvas.ids) & ~state.is_mask
        start = min(state.last_window.start, state.window.start)
        is_live[max(0, start - state.lead) : state.window.stop] = True
        return np.flatnonzero(is_live)
