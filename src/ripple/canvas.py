"""The canvas: a prompt, a response that starts as masks, and every change made to it.

Host-side integers only, no tensors. A decoder mutates the canvas in two ways, `commit` and `revoke`, and
may `note` why; whoever watches (trace, stream, viewer) hears of each through `observer`.
Positions are absolute: 0 is the first prompt token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.bool_]  # a choice among the rows of a Look

Observer = Callable[[str, dict[str, Any]], None]


class Window(NamedTuple):
    """A half-open range of absolute positions, usually one block of the response."""

    start: int
    stop: int


class Canvas:
    """One request's token ids, `prompt` first, then `length` positions to decode in blocks."""

    __slots__ = ("block", "ids", "mask_id", "observer", "prompt_len", "rng")

    def __init__(self, prompt: Ints, length: int, block: int, mask_id: int, seed: int = 0) -> None:
        self.ids: Ints = np.concatenate([prompt, np.full(length, mask_id, dtype=np.int64)])
        self.prompt_len = len(prompt)
        self.block = block
        self.mask_id = mask_id
        self.rng = np.random.default_rng(seed)  # for decoders that choose at random
        self.observer: Observer | None = None

    @property
    def response(self) -> Ints:
        """The response part of the canvas, masks included (a view)."""
        return self.ids[self.prompt_len :]

    def windows(self) -> Iterator[Window]:
        """Yield the blocks from left to right; the last one may be shorter."""
        for start in range(self.prompt_len, len(self.ids), self.block):
            yield Window(start, min(start + self.block, len(self.ids)))

    def masked(self, window: Window) -> Ints:
        """Return the positions of `window` that are still masked, ascending."""
        start, stop = window
        return np.nonzero(self.ids[start:stop] == self.mask_id)[0] + start

    def revealed(self, window: Window) -> Ints:
        """Return the positions of `window` that hold a token, ascending."""
        start, stop = window
        return np.nonzero(self.ids[start:stop] != self.mask_id)[0] + start

    def commit(self, pos: Ints, token: Ints, p: Floats, cause: str) -> None:
        """Write `token` at the masked positions `pos`; `p` and `cause` say how sure and why."""
        assert (self.ids[pos] == self.mask_id).all(), "a committed position must be masked"
        self.ids[pos] = token
        if self.observer is not None:
            self.observer(
                "commit",
                {"pos": pos.tolist(), "token": token.tolist(), "p": p.tolist(), "cause": cause},
            )

    def revoke(self, pos: Ints, cause: str) -> None:
        """Mask the positions `pos` again."""
        self.ids[pos] = self.mask_id
        if self.observer is not None:
            self.observer("revoke", {"pos": pos.tolist(), "cause": cause})

    def note(self, kind: str, facts: Callable[[], dict[str, Any]]) -> None:
        """Tell the observer something worth tracing; `facts` is only called when someone listens."""
        if self.observer is not None:
            self.observer(kind, facts())
