"""From asks to batch rows: what one request needs of a forward, and where each of its looks is read.

An ask becomes one or more *batch rows*. A batch row is the live positions of a canvas (those whose states
are recomputed), followed by the branches packed behind them. `packed` lookahead is one row with branches;
`thin` lookahead is one, too, whose branches copy only what is masked; `batched` lookahead is one row per
what-if, exact and dearer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ripple.canvas import Canvas, Ints, Window
from ripple.look import Ask, Edits
from ripple.models.base import ModelConfig


@dataclass(slots=True)
class PackedBranches:
    """Copies of the window under edits, or a shadow of masks: g branches of w positions."""

    ids: Ints  # [g, w]
    pos: Ints  # [w] their positions, ascending
    hide: tuple[int | Ints, int | Ints]  # keys in [lo, hi) are hidden, from all positions or [w] from each
    limits: Ints | None = None  # [w] canvas keys at and behind the limit are hidden; None: nothing is
    hides_own: bool = False  # thin: in place of a range, the canvas's keys at `pos` are hidden


@dataclass(slots=True)
class BatchRow:
    """One canvas in a forward."""

    ids: Ints  # [r] tokens of the live positions
    pos: Ints  # [r] the positions, ascending
    n_keys: int  # length of the canvas
    slot: int | None  # where the frozen keys lie; None: every position is live
    store_slot: int | None = None  # slot that takes the live positions' keys
    branches: list[PackedBranches] = field(default_factory=list)
    limits: Ints | None = None  # [r] position i sees keys in [0, limit_i); None: all of the canvas

    @property
    def n_branches(self) -> int:
        """How many branches are packed behind the live positions."""
        return sum(len(some.ids) for some in self.branches)


@dataclass(slots=True)
class ReadSpan:
    """One look of an ask: which positions are read, and in which batch row and branch."""

    pos: Ints
    row: BatchRow
    branch: int | None  # its number behind the row
    lead: int  # rows by which a prediction precedes its position
    branch_pos: Ints | None = None  # positions of that branch
    rows: slice = field(default_factory=lambda: slice(0))  # of all rows read in this tick


@dataclass(slots=True)
class AskLayout:
    """The looks of one ask, in the order base, branches, shadow, ahead, reread."""

    base: ReadSpan
    branches: list[ReadSpan]
    shadow: ReadSpan | None = None
    ahead: ReadSpan | None = None
    reread: ReadSpan | None = None

    @property
    def looks(self) -> list[ReadSpan]:
        """The spans of masked positions, in the order of the decoder's answer."""
        return [self.base, *self.branches, *([self.ahead] if self.ahead else [])]

    @property
    def spans(self) -> list[ReadSpan]:
        """All spans; the order in which their rows are handed out."""
        spans = [self.base, *self.branches]
        if self.shadow is not None:
            spans.append(self.shadow)
        if self.ahead is not None:
            spans.append(self.ahead)
        if self.reread is not None:
            spans.append(self.reread)
        return spans


def build_layout(
    canvas: Canvas, ask: Ask, live: Ints, config: ModelConfig, lookahead: str,
    slot: int | None = None, store_slot: int | None = None,
) -> AskLayout:  # fmt: skip
    """Turn one ask into batch rows.

    `live` holds the positions that predict those that are read, `config.logit_shift` earlier, and all masked
    ones of the window.
    """
    ids, n_keys, window, lead = canvas.ids, len(canvas.ids), ask.window, config.logit_shift
    live_ids, limits = ids[live], _limits(canvas, config, live)
    base = BatchRow(live_ids, live, n_keys, slot, store_slot, limits=limits)
    masked = canvas.masked(window)

    branches = []
    copies: PackedBranches | None = None
    if lookahead != "batched" and ask.branches:
        copies = _window_copies(canvas, window, ask.branches, config, lookahead == "thin")
        base.branches.append(copies)
    still_masked: dict[tuple[int, ...], Ints] = {}  # RPS edits one position in many ways
    for number, edits in enumerate(ask.branches):
        edited = tuple(p for p, _ in edits)
        if edited not in still_masked:
            still_masked[edited] = _without(masked, edited)
        open_pos = still_masked[edited]
        if copies is not None:
            branches.append(ReadSpan(open_pos, base, number, lead, copies.pos))
        else:  # a what-if reads the same frozen keys and stores none
            row_ids = live_ids.copy()
            for p, token in edits:
                row_ids[np.searchsorted(live, p)] = token
            what_if = BatchRow(row_ids, live, n_keys, slot, limits=limits)
            branches.append(ReadSpan(open_pos, what_if, None, lead))

    shadow = None
    if ask.shadow:
        number = base.n_branches
        masks = _shadow(canvas, window, config)
        base.branches.append(masks)
        shadow = ReadSpan(np.array(ask.shadow, dtype=np.int64), base, number, lead, masks.pos)
    ahead = None
    if ask.ahead:
        rest = canvas.masked(Window(window.stop, n_keys))
        ahead = ReadSpan(rest[np.isin(rest - lead, live, assume_unique=True)], base, None, lead)
    reread = ReadSpan(canvas.revealed(window), base, None, lead) if ask.reread else None
    return AskLayout(ReadSpan(masked, base, None, lead), branches, shadow, ahead, reread)


def next_token_layout(
    canvas: Canvas, start: int, live: Ints, config: ModelConfig, slot: int | None, store_slot: int | None
) -> AskLayout:
    """Lay out the rows before `start` alone, of which the last one predicts the token at `start`."""
    limits = config.limits(live, start, start)
    row = BatchRow(canvas.ids[live], live, start, slot, store_slot, limits=limits)
    return AskLayout(ReadSpan(np.array([start]), row, None, lead=1), [])


def _limits(canvas: Canvas, config: ModelConfig, pos: Ints) -> Ints | None:
    """Return which keys of the canvas rows at `pos` see; None where each sees all."""
    n_keys = len(canvas.ids)
    limits = config.limits(pos, n_keys, canvas.block_at(n_keys - 1).start)
    return None if limits is None or (limits == n_keys).all() else limits


def _without(pos: Ints, edited: tuple[int, ...]) -> Ints:
    """Return the positions that are not edited; RPS edits one, LoPA one per branch, others any number."""
    if not edited:
        return pos
    rest: Ints = pos[pos != edited[0]] if len(edited) == 1 else pos[~np.isin(pos, edited)]
    return rest


def _window_copies(
    canvas: Canvas, window: Window, branches: Sequence[Edits], config: ModelConfig, is_thin: bool
) -> PackedBranches:
    """Copy the window, with the position that predicts its first token, and hide the original.

    Where the model attends block by block, its whole block is copied, and what-ifs are exact. Thin copies
    have its masks alone, with the positions that predict them, and see the canvas's other tokens.
    """
    if config.attention_block is not None:
        window = canvas.block_at(window.start)
    start, stop = window.start - config.logit_shift, window.stop
    pos: Ints = np.arange(start, stop)
    if is_thin:
        masked = canvas.masked(window)
        pos = np.union1d(masked - config.logit_shift, masked)
    copies = canvas.ids[pos][None].repeat(len(branches), axis=0)
    for copy, edits in zip(copies, branches, strict=True):
        for p, token in edits:
            copy[np.searchsorted(pos, p) if is_thin else p - start] = token
    limits = _limits(canvas, config, pos)
    return PackedBranches(copies, pos, (0, 0) if is_thin else (start, stop), limits, is_thin)


def _shadow(canvas: Canvas, window: Window, config: ModelConfig) -> PackedBranches:
    """Lay masks over the positions that predict the window; each sees all but the token it predicts."""
    lead = config.logit_shift
    pos = np.arange(window.start - lead, window.stop - lead)
    masks, limits = np.full((1, len(pos)), canvas.mask_id), _limits(canvas, config, pos)
    return PackedBranches(masks, pos, (pos + lead, pos + lead + 1), limits)
