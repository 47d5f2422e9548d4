"""A cache after d2Cache: recompute the masks likely to be decoded soon, fresh tokens, and a few others."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ripple.caches.base import Cache, CacheState
from ripple.canvas import Floats, Ints, Rows, Window
from ripple.fields import param


@dataclass(frozen=True)
class D2Cache(Cache):
    """Recompute the masks likely to be decoded soon, fresh tokens, and a few others (after d2Cache).

    As published: the request's first forward computes everything. Then the `masks` masked positions with
    the highest confidence times certainty density are recomputed, the block's before all others, and so is
    each token that was committed since; small gaps between recomputed rows are closed. The density of a
    position is the share of known positions around it under a Gaussian of width σ.

    Ours: all masks of the block are recomputed, since decoders look at them all; a position that was never
    read counts as sure, so that density alone ranks it. d2Cache picks the remaining tokens by attention
    rollout; weights never leave our attention, so we take the share `rest` nearest to a recomputed row.
    """

    name = "d2"
    paper = "after d2Cache, arXiv 2509.23094; in part own choices"
    stores_every_step = True

    masks: int = param(32, "masked positions that are recomputed", within="[1, inf)")
    sigma: float = param(10.0, "σ of the certainty density, positions", within="(0, inf)")
    gap: int = param(
        4, "two recomputed rows at most this far apart take all between them along", within="[0, inf)"
    )
    rest: float = param(0.1, "share of the remaining positions that are recomputed too", within="[0, 1]")

    def is_refresh(self, state: CacheState) -> bool:
        """Say whether this is the request's first forward, or a refresh."""
        return state.is_first or (self.refresh is not None and state.step % self.refresh == 0)

    def step_positions(self, state: CacheState) -> Ints:
        """Return the chosen masks' rows, the fresh tokens, and what lies between or near them."""
        is_live = (state.stored_token != state.canvas.ids) & ~state.is_mask
        is_live[state.needed] = True
        is_live[self._promising(state) - state.lead] = True
        live = np.flatnonzero(is_live)
        spans = np.diff(live)
        for i in np.flatnonzero((spans > 1) & (spans <= self.gap)):
            is_live[live[i] : live[i + 1]] = True
        others, live = np.flatnonzero(~is_live), np.flatnonzero(is_live)
        nearest = np.argsort(_distance(others, live, len(is_live)), kind="stable")
        is_live[others[nearest[: math.ceil(self.rest * len(others))]]] = True
        return np.flatnonzero(is_live)

    def _promising(self, state: CacheState) -> Ints:
        """Return the masked positions with the best score, the block's first, among the next few blocks."""
        canvas, start = state.canvas, state.window.start
        masked = canvas.masked(Window(start, len(canvas.ids)))
        if not len(masked):  # a decoder reads what it has revealed
            return masked
        last = masked[min(self.masks, len(masked)) - 1] - canvas.prompt_len  # where the k-th mask lies
        stop = canvas.prompt_len + (int(last) // canvas.block + 1) * canvas.block
        masked = masked[masked < max(stop, state.window.stop)]
        density = certainty_density(canvas.response != canvas.mask_id, self.sigma)
        score = state.confidence[masked] * density[masked - canvas.prompt_len]
        score[masked < state.window.stop] += 1  # scores are at most 1: the block comes first
        return masked[np.argsort(-score, kind="stable")[: self.masks]]


def _distance(pos: Ints, live: Ints, far: int) -> Ints:
    """Return how far each position is from the nearest live one."""
    after = np.searchsorted(live, pos)
    to_next = np.append(live, 2 * far)[after] - pos
    to_last = pos - np.append(live, -far)[after - 1]  # index -1 of the first ones is the far end
    nearest: Ints = np.minimum(to_next, to_last)
    return nearest


def certainty_density(known: Rows, sigma: float) -> Floats:
    """Return the share of known positions around each, weighed by a Gaussian of width `sigma`.

    What lies before the response is known; what lies after it is as known as its last position.
    """
    reach = math.ceil(6 * sigma)  # beyond, the weight is below 2e-8
    weight = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    padded = np.concatenate([np.ones(reach), known, np.full(reach, float(known[-1]))])
    share: Floats = (np.convolve(padded, weight, mode="valid") / weight.sum()).astype(np.float32)
    return share
