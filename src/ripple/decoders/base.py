"""What a decoder is: a frozen record of its paper's settings plus a conversation with the engine.

`decode` is a generator: it yields an `Ask` (one forward) and is resumed with the `Answer`. Between yields
it is plain code on small arrays. It never holds a model, so counting, caching, batching, packing
and tracing exist once, in the engine.

A `Rule` is a decoder that needs one plain forward per step; its `picker` is also what RPS uses as its
standard commit rule.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from ripple.canvas import Canvas, Floats, Rows
from ripple.fields import check_fields, spec
from ripple.look import Answer, Ask, Look, Wants

Conversation = Generator[Ask, Answer, None]
Pick = tuple[Rows, str]  # which rows of the look to commit, and the cause to write in the trace
Picker = Callable[[Look, Look | None], Pick]  # (rows of the window, rows after it) -> commit set


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a decoder may know of the model and the canvas before its first forward."""

    length: int  # response positions
    block: int  # positions per block
    family: str = ""  # of the model
    folder: Path | None = None  # of the checkpoint


@dataclasses.dataclass(frozen=True)
class Decoder(ABC):
    """A decoding method and its settings."""

    name: ClassVar[str]
    paper: ClassVar[str]  # where the method comes from, for listings
    revokes: ClassVar[bool] = False  # may a committed token be masked again?
    fills_end: ClassVar[bool] = False  # fill what follows a final end token, unless asked not to?

    def __post_init__(self) -> None:
        check_fields(self.name, self)

    @property
    def wants(self) -> Wants:
        """Statistics that this decoder's looks must carry."""
        return Wants()

    @property
    def idle_forwards(self) -> int:
        """How many forwards of a block need not reveal a token."""
        return 0

    def fitted(self, setup: Setup) -> Self:
        """Return the decoder as this model and canvas need it, or raise; called when a request is made."""
        return self

    @abstractmethod
    def decode(self, canvas: Canvas) -> Conversation:
        """Fill the canvas, asking for one forward per yield."""

    def settings(self) -> dict[str, Any]:
        """Return the fields as plain values, for results and traces."""
        return {
            f.name: value.describe() if isinstance(value := getattr(self, f.name), Decoder) else value
            for f in dataclasses.fields(self)
        }

    def describe(self) -> str:
        """Return the decoder as `decoder` reads it: its name and the fields that were changed."""
        return spec(self.name, self)


@dataclasses.dataclass(frozen=True)
class Rule(Decoder):
    """A decoder that commits from one plain forward per step."""

    reads_ahead: ClassVar[bool] = False  # does the picker want the rows after the window too?

    @abstractmethod
    def picker(self, canvas: Canvas) -> Picker:
        """Return the function that chooses what to commit, with whatever it remembers between steps."""

    def decode(self, canvas: Canvas) -> Conversation:
        """Look, commit what the rule picks, until each block is full."""
        pick = self.picker(canvas)
        for window in canvas.windows():
            while len(canvas.masked(window)):
                answer = yield Ask(window, ahead=self.reads_ahead)
                commit(canvas, answer.base, pick(answer.base, answer.ahead))


@dataclasses.dataclass(frozen=True)
class SimpleRule(Rule):
    """A rule without memory: what it commits follows from one look alone."""

    def picker(self, canvas: Canvas) -> Picker:
        """Return `pick`, which needs no state."""
        return lambda look, ahead: self.pick(look)

    @abstractmethod
    def pick(self, look: Look) -> Pick:
        """Return which rows of `look` to commit, never none, and the cause that the trace shows."""


def commit(canvas: Canvas, look: Look, pick: Pick) -> None:
    """Write the look's own predictions at the picked rows."""
    rows, cause = pick
    canvas.commit(look.pos[rows], look.token[rows], look.p[rows], cause)


def place(canvas: Canvas, pos: int, token: int, p: float, cause: str) -> None:
    """Write one token at one position."""
    canvas.commit(np.array([pos]), np.array([token]), np.array([p], dtype=np.float32), cause)


def qualified_or_best(qualified: Rows, score: Floats) -> Pick:
    """Return the qualified rows, or the single best one, so that every step makes progress."""
    if qualified.any():
        return qualified, "standard"
    return top_rows(score, 1), "fallback"


def top_rows(score: Floats, n: int) -> Rows:
    """Choose the n rows with the highest score, the earlier one on ties."""
    rows = np.zeros(len(score), dtype=np.bool_)
    rows[ranking(score)[:n]] = True
    return rows


def ranking(score: Floats) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Return row indices by falling score, the earlier row first on ties."""
    return np.argsort(-score, kind="stable")


def longest_prefix(score: Floats, accepted: Rows) -> Pick:
    """Commit the ranked rows up to the first refusal; the best row always goes.

    `accepted` is in ranked order (best first).
    """
    n = len(accepted) if accepted.all() else int(np.argmin(accepted))
    return top_rows(score, max(n, 1)), "standard" if n else "fallback"
