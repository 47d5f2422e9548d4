"""What a cache policy is: before every forward it says which positions are recomputed.

The keys of all other positions are read from the request's slot of the key store. A policy may look at the
canvas, at the token whose keys are stored at each position, and at how sure the model was there
(`CacheState`); it never sees a tensor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from ripple.canvas import Canvas, Floats, Ints, Rows, Window
from ripple.errors import RippleError
from ripple.fields import check_fields, param, spec
from ripple.look import Answer

NO_KEYS = -1  # what `CacheState.stored_token` holds where no keys are stored


class LiveRows(Protocol):
    """The positions that a forward recomputed, ascending, and the tokens that stood there."""

    pos: Ints
    ids: Ints


@dataclass(slots=True)
class CacheState:
    """What a policy may know about a request before its next forward."""

    canvas: Canvas
    lead: int  # rows by which a prediction precedes its position: 1 with logit shift, else 0
    stored_token: Ints  # [N] the token whose keys are stored, or NO_KEYS
    confidence: Floats  # [N] P_max at the last look at a position; 1 before the first
    window: Window = Window(0, 0)  # what the next forward reads: a block, or a window that slides
    last_window: Window = Window(0, 0)  # what the last forward read
    block_start: int = -1  # of the block in which the window starts
    step: int = 0  # forwards that this block has had
    forwards: int = 0  # forwards that the request has had
    # Lowest position that a forward has recomputed without storing it, since a refresh.
    first_live: int = 1 << 62
    stored_to: int = 0  # where the last block began whose opening stored keys: those before it are final

    @classmethod
    def new(cls, canvas: Canvas, lead: int) -> CacheState:
        """Return the state of a request that has had no forward."""
        n = canvas.max_len
        return cls(canvas, lead, np.full(n, NO_KEYS), np.ones(n, dtype=np.float32))

    def turn_to(self, window: Window) -> None:
        """Note what is read next; a window that starts in another block opens it."""
        start = self.canvas.block_at(window.start).start
        if start != self.block_start:
            self.block_start, self.step = start, 0
        self.window = window

    def advance(self, live: LiveRows, is_stored: bool, answer: Answer) -> None:
        """Take note of a forward whose answer was delivered: what it stored, and how sure the model was."""
        if is_stored:
            self.stored_token[live.pos] = live.ids
            self.first_live = len(self.canvas.ids)
            self.stored_to = self.block_start
        else:
            self.first_live = min(self.first_live, int(live.pos[0]))
        self.step += 1
        self.forwards += 1
        self.last_window = self.window
        for look in (answer.base, answer.ahead):
            if look is not None:
                self.confidence[look.pos] = look.p

    @property
    def needed(self) -> Ints:
        """The rows that must be recomputed: the block's masks, which branches edit, and their predictors."""
        masked = self.canvas.masked(self.window)
        return np.union1d(masked - self.lead, masked) if self.lead else masked

    @property
    def is_first(self) -> bool:
        """Whether no forward has stored keys yet."""
        return bool(self.stored_token[-1] == NO_KEYS)

    @property
    def is_mask(self) -> Rows:
        """[N] which positions are masked."""
        mask: Rows = self.canvas.ids == self.canvas.mask_id
        return mask


def check_positions(live: object, state: CacheState) -> Ints:
    """Return what a policy has a forward recompute, or raise one sentence that says what is wrong with it."""
    n = len(state.canvas.ids)
    if not isinstance(live, np.ndarray) or live.ndim != 1 or live.dtype.kind != "i":
        raise RippleError(f"Positions must be a one-dimensional array of whole numbers, got {live!r}.")
    if not len(live) or live[0] < 0 or live[-1] >= n or (np.diff(live) < 1).any():
        given = np.array2string(live, threshold=6)
        raise RippleError(f"Positions must be some of 0 to {n - 1}, ascending, got {given}.")
    rests = np.ones(n, dtype=np.bool_)
    rests[live] = False
    if (unread := state.needed[rests[state.needed]]).size:
        raise RippleError(f"Position {unread[0]} is read and must be recomputed.")
    if (unknown := np.flatnonzero(rests & (state.stored_token[:n] == NO_KEYS))).size:
        raise RippleError(f"Position {unknown[0]} has no keys yet and must be recomputed.")
    return live


@dataclass(frozen=True)
class Cache(ABC):
    """A policy: which positions a forward recomputes, and whether it stores their keys."""

    name: ClassVar[str]
    paper: ClassVar[str] = ""
    stores_every_step: ClassVar[bool] = False  # False: only a refresh stores keys
    needs_blocks: ClassVar[bool] = False  # for models that attend block by block, and for no others

    refresh: int | None = param(
        None, "recompute everything at every n-th forward of a block", within="[1, inf)"
    )
    match_fast_dllm_first: bool = param(
        False,
        "with a logit shift, commit a block's first token from the refresh alone and freeze the row before "
        "the block, as Fast-dLLM's Dream does",
    )

    def __post_init__(self) -> None:
        check_fields(f"cache {self.name}", self)

    def is_refresh(self, state: CacheState) -> bool:
        """Say whether the next forward recomputes `refresh_positions` and stores their keys."""
        return state.step == 0 or (self.refresh is not None and state.step % self.refresh == 0)

    def refresh_positions(self, state: CacheState) -> Ints:
        """Return the positions that a refresh recomputes, ascending."""
        return np.arange(len(state.canvas.ids))

    @abstractmethod
    def step_positions(self, state: CacheState) -> Ints:
        """Return the positions that any other forward recomputes, ascending.

        Those of `state.needed` are among them, and those that have no keys yet.
        """

    def first_row(self, state: CacheState) -> int:
        """Return the first row of the block: the one that predicts its first position, where that is read.

        A row that was recomputed since the last refresh stays live: its stored keys may have been
        overwritten.
        """
        start = state.block_start
        is_read = not self.match_fast_dllm_first or state.canvas.ids[start] == state.canvas.mask_id
        return min(start - state.lead if is_read else start, max(start - state.lead, state.first_live))

    def describe(self) -> str:
        """Return the policy as `cache` reads it: its name and the fields that were changed."""
        return spec(self.name, self)
