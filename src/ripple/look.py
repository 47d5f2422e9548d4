"""What a decoder asks of the model and what it gets back: small numpy tables, never logits.

One `Ask` is one forward. Its base is the canvas as it stands; `branches` are what-ifs on a copy of the
window; `shadow` re-predicts tokens that are already revealed, each one hidden from itself, and `reread` with
all of them in sight. A `Look` is a table whose rows are the positions that were read, in ascending order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ripple.canvas import MOST_BRANCHES, Canvas, Floats, Ints, Rows, Window
from ripple.errors import RippleError

Edits = tuple[tuple[int, int], ...]  # (absolute position, token id) pairs written into a branch


@dataclass(frozen=True, slots=True)
class Wants:
    """Which statistics a decoder's looks must carry beside token, p and entropy."""

    top: int = 1  # how many of the most probable tokens per row
    kl: bool = False  # KL(p now || p at the request's previous look), per row


@dataclass(frozen=True, slots=True)
class Ask:
    """One forward that a decoder waits for. Canvas 0 is the base, canvas i is branch i - 1."""

    window: Window
    branches: tuple[Edits, ...] = ()
    probes: tuple[tuple[int, int, int], ...] = ()  # (canvas, position, token) whose probability is wanted
    shadow: tuple[int, ...] = ()  # revealed positions to re-predict, leave-one-out
    ahead: bool = False  # also read masked rows after the window, where they are recomputed
    reread: bool = False  # also read the window's revealed positions, each seeing its own token
    adopted: int = 0  # which canvas of the previous ask the decoder went on from
    next_token: bool = False  # read the window's first position alone, from the tokens before it


@dataclass(slots=True)  # not frozen: one is made per branch and step, and freezing doubles its cost
class Look:
    """What one forward says about n positions. All arrays have n rows, aligned with `pos`."""

    pos: Ints  # [n] absolute positions, ascending
    token: Ints  # [n] the prediction: the most probable token, or a sampled one when temperature > 0
    p: Floats  # [n] its probability
    entropy: Floats  # [n] over the full vocabulary, nats
    top_token: Ints  # [n, k] most probable first, ties by lowest id
    top_p: Floats  # [n, k]
    kl: Floats | None = None  # [n] nats

    def __len__(self) -> int:
        return len(self.pos)

    def keep(self, rows: Rows) -> Look:
        """Return the look at the chosen rows only."""
        return Look(
            self.pos[rows],
            self.token[rows],
            self.p[rows],
            self.entropy[rows],
            self.top_token[rows],
            self.top_p[rows],
            None if self.kl is None else self.kl[rows],
        )

    def p_max(self, pos: int) -> float:
        """Return the probability of the most probable token at one of the positions."""
        return float(self.top_p[self.pos == pos, 0][0])

    def mean_entropy(self, but: Sequence[int]) -> float:
        """Return the mean entropy over the rows that are not at `but`; 0 where there are none."""
        rest = self.entropy[~np.isin(self.pos, but)]
        return float(rest.mean(dtype=np.float64)) if len(rest) else 0.0


MOST_TOP = 255  # tokens of a row
_LISTS = ("branches", "probes", "shadow")
_FLAGS = ("ahead", "reread", "next_token")
_NO_INTS: Ints = np.zeros(0, dtype=np.int64)
_NO_FLOATS: Floats = np.zeros(0, dtype=np.float32)
NO_ROWS = Look(_NO_INTS, _NO_INTS, _NO_FLOATS, _NO_FLOATS, _NO_INTS[:, None], _NO_FLOATS[:, None])


def _no_floats() -> Floats:
    return np.zeros(0, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one `Ask`."""

    base: Look  # masked rows of the window
    branches: tuple[Look, ...] = ()  # masked rows of the window under each branch's edits
    probes: Floats = field(default_factory=_no_floats)  # probability of each probe
    shadow: Floats = field(default_factory=_no_floats)  # probability of the revealed token at each shadow row
    ahead: Look | None = None  # masked rows after the window
    reread: Look = field(default_factory=lambda: NO_ROWS)  # revealed rows of the window, where they were read


def check_wants(wants: object) -> Wants:
    """Return what a decoder wants of its looks, or raise one sentence."""
    if not isinstance(wants, Wants) or isinstance(wants.top, bool) or not isinstance(wants.top, int):
        raise RippleError(f"A decoder's wants must be Wants(top=..., kl=...), got {wants!r}.")
    if not 1 <= wants.top <= MOST_TOP:
        raise RippleError(f"A decoder may want 1 to {MOST_TOP} top tokens, got {wants.top}.")
    return wants


def check_ask(ask: object, canvas: Canvas, n_adoptable: int, has_next_token: bool = False) -> Ask:
    """Return the ask, or raise one sentence that says what a decoder did wrong.

    `n_adoptable` is how many canvases the previous ask had; `has_next_token` says whether the model predicts
    a token from those before it alone. The engine trusts an ask that has passed.
    """
    if not isinstance(ask, Ask):
        raise RippleError(f"A decoder must yield an Ask, got {type(ask).__name__}.")
    _check_types(ask)
    start, stop = ask.window
    if not canvas.prompt_len <= start < stop <= len(canvas.ids):
        raise RippleError(
            f"The window {start} to {stop} does not lie in the response, {canvas.prompt_len} to "
            f"{len(canvas.ids)}."
        )
    if len(ask.branches) > MOST_BRANCHES:
        raise RippleError(f"An ask may have {MOST_BRANCHES} branches, got {len(ask.branches)}.")
    if not 0 <= ask.adopted <= n_adoptable:
        raise RippleError(
            f"adopted must be a canvas of the previous ask, 0 to {n_adoptable}, got {ask.adopted}."
        )
    ids, mask_id = canvas.ids, canvas.mask_id
    if not (ask.reread or (ids[start:stop] == mask_id).any()):
        raise RippleError(f"The window {start} to {stop} holds no masked position; there is nothing to ask.")
    if ask.next_token and (ask.branches or ask.shadow or ask.ahead or ask.reread or ids[start] != mask_id):
        raise RippleError("An ask for the next token reads the window's first position alone, a masked one.")
    if ask.next_token and not has_next_token:
        raise RippleError("This model does not predict a token from those before it alone.")
    for edits in ask.branches:
        for pos, token in edits:
            if not start <= pos < stop or ids[pos] != mask_id:
                raise RippleError(f"A branch edits position {pos}, which is not masked in {start} to {stop}.")
            if not 0 <= token < canvas.vocab_size or token == mask_id:
                raise RippleError(f"A branch writes token {token}, which is no token of the vocabulary.")
        if len(edits) > 1 and len({pos for pos, _ in edits}) < len(edits):
            raise RippleError("A branch edits a position twice.")
    for number, pos, token in ask.probes:
        _check_probe(ask, canvas, number, pos, token)
    if ask.shadow:
        _check_shadow(ask, canvas)
    return ask


def _check_types(ask: Ask) -> None:
    """Raise unless every field is what it is declared to be; a generator could be read only once."""
    if not isinstance(ask.window, Window):
        raise RippleError(f"An ask's window must be a Window, got {ask.window!r}.")
    for name in _LISTS:
        if not isinstance(getattr(ask, name), tuple | list):
            raise RippleError(f"An ask's {name} must be a tuple, got {type(getattr(ask, name)).__name__}.")
    for name in _FLAGS:
        if not isinstance(getattr(ask, name), bool | np.bool_):
            raise RippleError(f"An ask's {name} must be true or false, got {getattr(ask, name)!r}.")
    numbers = [*ask.window, ask.adopted, *ask.shadow]
    for edits in ask.branches:
        if not isinstance(edits, tuple | list):
            raise RippleError(f"A branch must be a tuple of edits, got {type(edits).__name__}.")
        for edit in edits:
            numbers += edit
    for probe in ask.probes:
        numbers += probe
    for number in numbers:
        if not isinstance(number, int | np.integer):
            raise RippleError(f"Positions, tokens and canvases must be whole numbers, got {number!r}.")


def _check_probe(ask: Ask, canvas: Canvas, number: int, pos: int, token: int) -> None:
    """Raise unless a probe names a row that is read and a token that exists."""
    if not 0 <= number <= len(ask.branches):
        raise RippleError(f"A probe names canvas {number}; there are 0 to {len(ask.branches)}.")
    start, stop = ask.window
    is_open = start <= pos < stop and canvas.ids[pos] == canvas.mask_id
    if not is_open or (number and any(pos == p for p, _ in ask.branches[number - 1])):
        raise RippleError(f"A probe names position {pos}, which is not masked in its canvas.")
    if not 0 <= token < canvas.vocab_size:
        raise RippleError(f"A probe names token {token}, which is no token of the vocabulary.")


def _check_shadow(ask: Ask, canvas: Canvas) -> None:
    """Raise unless shadow positions are revealed ones of the window, in ascending order."""
    start, stop = ask.window
    last = start - 1
    for pos in ask.shadow:
        if not last < pos < stop or canvas.ids[pos] == canvas.mask_id:
            raise RippleError(
                f"Shadow positions must be revealed ones of {start} to {stop}, ascending; got {pos}."
            )
        last = pos
