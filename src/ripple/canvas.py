"""The canvas: a prompt, a response that starts as masks, and every change made to it.

Host-side integers only, no tensors. A decoder changes the canvas in two ways, `commit` and `revoke`, and
may `note` why; the observer (trace, stream, viewer) is told of each. Positions are absolute: 0 is the first
prompt token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ripple.errors import RippleError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.bool_]  # a choice among the rows of a Look

_WHOLE = "iu"  # kinds of arrays: integers, signed or not
MOST_BRANCHES = 256  # of one ask
MOST_ROWS = 1 << 31  # no limit

Observer = Callable[[str, dict[str, Any]], None]


class Window(NamedTuple):
    """A half-open range of absolute positions, usually one block of the response."""

    start: int
    stop: int


class Canvas:
    """One request's token ids, `prompt` first, then `length` positions to decode in blocks."""

    __slots__ = (
        "_causes", "_ids", "block", "ids", "mask_id", "most_rows", "observer", "prompt_len", "rng",
        "vocab_size",
    )  # fmt: skip

    def __init__(
        self, prompt: Ints, length: int, block: int, mask_id: int, seed: int = 0, vocab_size: int = 1 << 31
    ) -> None:
        self._ids: Ints = np.concatenate([prompt, np.full(length, mask_id, dtype=np.int64)])
        self.ids: Ints = self._ids.view()
        self.ids.setflags(write=False)  # tokens change by commit and revoke alone
        self._causes = np.full(length, None, dtype=object)
        self.prompt_len = len(prompt)
        self.block = block
        self.mask_id = mask_id
        self.vocab_size = vocab_size
        self.rng = np.random.default_rng(seed)  # for decoders that choose at random
        self.most_rows = MOST_ROWS  # of the next window and its branches; fewer where the device is busy
        self.observer: Observer | None = None

    @property
    def response(self) -> Ints:
        """The response part of the canvas, masks included (a view)."""
        return self.ids[self.prompt_len :]

    @property
    def causes(self) -> list[str | None]:
        """Why each response position was committed; None where it is masked."""
        causes: list[str | None] = self._causes.tolist()
        return causes

    @property
    def max_len(self) -> int:
        """Positions that the canvas may grow to."""
        return len(self.ids)

    @property
    def whole_response(self) -> Ints:
        """The response as long as it may grow."""
        return self.response

    def windows(self) -> Iterator[Window]:
        """Yield the blocks from left to right; the last one may be shorter."""
        for start in range(self.prompt_len, len(self.ids), self.block):
            yield Window(start, min(start + self.block, len(self.ids)))

    def block_at(self, pos: int) -> Window:
        """Return the block that holds a position of the response."""
        start = pos - (pos - self.prompt_len) % self.block
        return Window(start, min(start + self.block, len(self.ids)))

    def grow(self) -> bool:
        """Open the next block of masks; False where there is none."""
        return False

    def masked(self, window: Window) -> Ints:
        """Return the positions of `window` that are still masked, ascending."""
        start, stop = window
        return np.nonzero(self._ids[start:stop] == self.mask_id)[0] + start

    def revealed(self, window: Window) -> Ints:
        """Return the positions of `window` that hold a token, ascending."""
        start, stop = window
        return np.nonzero(self._ids[start:stop] != self.mask_id)[0] + start

    def branches_for(self, window: Window) -> int:
        """How many branches, copies of the window, the next ask has room for."""
        width = window.stop - window.start
        return min(MOST_BRANCHES, max(0, self.most_rows - width) // width)

    @property
    def n_masked(self) -> int:
        """How many positions of the response are masked."""
        return int(np.count_nonzero(self._ids[self.prompt_len :] == self.mask_id))

    def commit(self, pos: Ints, token: Ints, p: Floats, cause: str) -> None:
        """Write `token` at the masked positions `pos`; `p` and `cause` say how sure and why."""
        if not len(pos):
            return
        at, tokens, sure = pos.tolist(), token.tolist(), p.tolist()  # a few numbers: faster than arrays
        if pos.dtype.kind not in _WHOLE or token.dtype.kind not in _WHOLE:
            raise RippleError("A commit's positions and tokens must be whole numbers.")
        self._check_commit(at, tokens, sure)
        taken = self._ids[pos] != self.mask_id
        if taken.any():
            raise RippleError(f"A commit names position {pos[taken][0]}, which already holds a token.")
        self._ids[pos] = token
        self._causes[pos - self.prompt_len] = cause
        if self.observer is not None:
            self.observer("commit", {"pos": at, "token": tokens, "p": sure, "cause": cause})

    def revoke(self, pos: Ints, cause: str) -> None:
        """Mask the positions `pos` again."""
        if not len(pos):
            return
        at = pos.tolist()
        self._check_positions("revocation", at)
        self._ids[pos] = self.mask_id
        self._causes[pos - self.prompt_len] = None
        if self.observer is not None:
            self.observer("revoke", {"pos": at, "cause": cause})

    def note(self, kind: str, facts: Callable[[], dict[str, Any]]) -> None:
        """Tell the observer something worth tracing; `facts` is only called when there is one."""
        if self.observer is not None:
            self.observer(kind, facts())

    def _check_commit(self, at: list[int], tokens: list[int], p: list[float]) -> None:
        """Raise unless positions, tokens and probabilities go together and each token can be written."""
        if len(at) != len(tokens):
            raise RippleError(f"A commit names {len(at)} positions and {len(tokens)} tokens.")
        if len(at) != len(p):
            raise RippleError(f"A commit names {len(at)} positions and {len(p)} probabilities.")
        self._check_positions("commit", at)
        if min(tokens) < 0 or max(tokens) >= self.vocab_size or self.mask_id in tokens:
            wrong = [t for t in tokens if not 0 <= t < self.vocab_size or t == self.mask_id]
            raise RippleError(
                f"A commit writes token {wrong[0]}; allowed are 0 to {self.vocab_size - 1} without the mask "
                f"{self.mask_id}."
            )

    def _check_positions(self, what: str, at: list[int]) -> None:
        """Raise unless the positions lie in the response and differ from each other."""
        if min(at) < self.prompt_len or max(at) >= len(self._ids):
            wrong = [pos for pos in at if not self.prompt_len <= pos < len(self._ids)]
            raise RippleError(
                f"A {what} names position {wrong[0]}, which is outside the response, {self.prompt_len} to "
                f"{len(self._ids) - 1}."
            )
        if len(set(at)) < len(at):
            raise RippleError(f"A {what} names a position twice.")


class BlockCanvas(Canvas):
    """A canvas for models that attend block by block: it ends with the open block and grows by the next one.

    It grows until a block holds an end token, or all of `length` is open, rounded up to whole blocks. Blocks
    are counted from position 0, so that the end of the prompt may lie in the first one, or from the prompt's
    end (`has_next_token`), and then decoders do not touch a block's first token, which the context predicts.
    """

    __slots__ = ("_all_causes", "_all_ids", "_end_ids", "_has_next_token", "_origin")

    def __init__(
        self, prompt: Ints, length: int, block: int, mask_id: int, seed: int = 0, vocab_size: int = 1 << 31,
        *, end_ids: tuple[int, ...] = (), has_next_token: bool = False,
    ) -> None:  # fmt: skip
        self._end_ids = np.array(end_ids, dtype=np.int64)
        self._has_next_token = has_next_token
        self._origin = len(prompt) if has_next_token else 0
        n = len(prompt) + length - self._origin
        rounded_up = length + -n % block
        super().__init__(prompt, rounded_up, block, mask_id, seed, vocab_size)
        self._all_ids, self._all_causes = self._ids, self._causes
        self._show(self._start_of(self.prompt_len) + block)

    @property
    def max_len(self) -> int:
        """Positions that the canvas may grow to."""
        return len(self._all_ids)

    @property
    def whole_response(self) -> Ints:
        """The response as long as it may grow; masks where it has not."""
        return self._all_ids[self.prompt_len :]

    def windows(self) -> Iterator[Window]:
        """Yield the open block, without what it has of the prompt or was predicted by the context."""
        start, stop = self.block_at(len(self.ids) - 1)
        yield Window(max(start + self._has_next_token, self.prompt_len), stop)

    def block_at(self, pos: int) -> Window:
        """Return the block that holds a position, its part of the prompt included."""
        start = self._start_of(pos)
        return Window(start, start + self.block)

    def grow(self) -> bool:
        """Open the next block of masks; False at the end of the text or of the canvas."""
        n = len(self.ids)
        if n == self.max_len or np.isin(self.response, self._end_ids).any():
            return False
        self._show(n + self.block)
        return True

    def _start_of(self, pos: int) -> int:
        return pos - (pos - self._origin) % self.block

    def _show(self, stop: int) -> None:
        """Let everything before `stop` be the canvas."""
        self._ids, self._causes = self._all_ids[:stop], self._all_causes[: stop - self.prompt_len]
        self.ids = self._ids.view()
        self.ids.setflags(write=False)
