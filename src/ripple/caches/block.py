"""Caches that change with the block: none, Fast-dLLM's prefix cache and its dual cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ripple.caches.base import Cache, CacheState
from ripple.canvas import Ints
from ripple.fields import param


@dataclass(frozen=True)
class NoCache(Cache):
    """Recompute the whole canvas in every forward."""

    name = "none"

    def step_positions(self, state: CacheState) -> Ints:
        """Return every position."""
        return self.refresh_positions(state)


@dataclass(frozen=True)
class PrefixCache(Cache):
    """Freeze what lies before the block; recompute the block and all masks after it."""

    name = "prefix"
    paper = "Fast-dLLM, arXiv 2505.22618"

    def step_positions(self, state: CacheState) -> Ints:
        """Return the block and everything after it."""
        return np.arange(self.first_row(state), len(state.canvas.ids))


@dataclass(frozen=True)
class DualCache(Cache):
    """Freeze everything but the block."""

    name = "dual"
    paper = "Fast-dLLM, arXiv 2505.22618"

    keep_prompt: bool = param(
        False, "compute the prompt's keys once; later blocks refresh the response alone"
    )

    def refresh_positions(self, state: CacheState) -> Ints:
        """Return every position, or all but the prompt when its keys are there to stay."""
        start = max(0, state.canvas.prompt_len - state.lead) if self.keep_prompt and not state.is_first else 0
        return np.arange(start, len(state.canvas.ids))

    def step_positions(self, state: CacheState) -> Ints:
        """Return the block alone, to the end of a window that reaches beyond it."""
        return np.arange(self.first_row(state), state.window.stop)
