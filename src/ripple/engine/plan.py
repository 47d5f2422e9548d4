"""Many asks, few forwards: lay canvases and their branches out as batch rows, and remember who reads what.

An ask becomes one or more *strips*. A strip is one batch row: the live rows of a canvas, followed by the
branches packed behind it. `packed` lookahead is one strip with branches; `batched` lookahead is one strip
per what-if, exact and dearer. Strips of all requests are grouped so that padding stays small;
each group is one `Forward`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ripple.canvas import Canvas, Ints, Window
from ripple.look import Ask, Edits

PADDING_LIMIT = 1.25  # a group may hold this many times the rows that are really needed
SMALL_GROUP = 4  # below this many strips a split costs more than the padding it saves


@dataclass(slots=True)
class Branches:
    """Copies of the window under edits, or a shadow of masks: g branches of w rows behind a strip."""

    ids: Ints  # [g, w]
    start: int  # position of the first row of each
    hidden: tuple[int | Ints, int | Ints]  # keys in [lo, hi) are invisible, to all rows or [w] to each


@dataclass(slots=True)
class Strip:
    """One batch row."""

    ids: Ints  # [r] tokens of the live rows
    pos: Ints  # [r] their positions, ascending
    n_keys: int  # length of the canvas
    slot: int | None  # where the frozen keys lie; None: every position is live
    keeps: int | None = None  # slot that takes the live rows' keys
    branches: list[Branches] = field(default_factory=list)

    @property
    def n_branches(self) -> int:
        """How many branches are packed behind the live rows."""
        return sum(len(some.ids) for some in self.branches)


@dataclass(slots=True)
class Draft:
    """One look of an ask: which positions are read, and in which strip and branch."""

    pos: Ints
    strip: Strip
    branch: int | None  # its number behind the strip
    start: int = 0  # position of the first row of that branch
    rows: slice = field(default_factory=lambda: slice(0))  # of all rows read in this tick; assign_rows says


@dataclass(slots=True)
class Reading:
    """The drafts of one ask, in the order base, branches, shadow, ahead."""

    base: Draft
    branches: list[Draft]
    shadow: Draft | None
    ahead: Draft | None

    @property
    def looks(self) -> list[Draft]:
        """The drafts whose distributions the decoder is shown, in the order of its answer."""
        return [self.base, *self.branches, *([self.ahead] if self.ahead else [])]

    @property
    def drafts(self) -> list[Draft]:
        """All drafts; the order in which their rows are handed out."""
        drafts = [self.base, *self.branches]
        if self.shadow is not None:
            drafts.append(self.shadow)
        if self.ahead is not None:
            drafts.append(self.ahead)
        return drafts


def lay_out(
    canvas: Canvas, ask: Ask, live: Ints, lead: int, packed: bool, slot: int | None, keeps: int | None
) -> Reading:
    """Turn one ask into strips: what to run for it and where each of its looks is read.

    `live` holds the window's masked positions and the rows that predict them, `lead` earlier.
    """
    ids, n_keys, window = canvas.ids, len(canvas.ids), ask.window
    live_ids = ids[live]
    base = Strip(live_ids, live, n_keys, slot, keeps)
    masked = canvas.masked(window)

    branches = []
    if packed and ask.branches:
        base.branches.append(_copies(ids, window, ask.branches, lead))
    still_open: dict[tuple[int, ...], Ints] = {}  # RPS edits one position in many ways
    for number, edits in enumerate(ask.branches):
        edited = tuple(p for p, _ in edits)
        if edited not in still_open:
            still_open[edited] = _without(masked, edited)
        open_pos = still_open[edited]
        if packed:
            branches.append(Draft(open_pos, base, number, window.start - lead))
        else:  # a what-if reads the same frozen keys and leaves none
            row = live_ids.copy()
            for p, token in edits:
                row[np.searchsorted(live, p)] = token
            branches.append(Draft(open_pos, Strip(row, live, n_keys, slot), None))

    shadow = None
    if ask.shadow:
        number = base.n_branches
        base.branches.append(_shadow(window, lead, canvas.mask_id))
        shadow = Draft(np.array(ask.shadow, dtype=np.int64), base, number, window.start - lead)
    ahead = None
    if ask.ahead:
        rest = canvas.masked(Window(window.stop, n_keys))
        ahead = Draft(rest[np.isin(rest - lead, live, assume_unique=True)], base, None)
    return Reading(Draft(masked, base, None), branches, shadow, ahead)


def _without(pos: Ints, edited: tuple[int, ...]) -> Ints:
    """Return the positions that are not edited; RPS edits one, LoPA one per branch, others any number."""
    if not edited:
        return pos
    rest: Ints = pos[pos != edited[0]] if len(edited) == 1 else pos[~np.isin(pos, edited)]
    return rest


def _copies(ids: Ints, window: Window, branches: Sequence[Edits], lead: int) -> Branches:
    """Copy the window, with the lead row that predicts its first token, and hide the original."""
    start, stop = window.start - lead, window.stop
    rows = ids[start:stop][None].repeat(len(branches), axis=0)
    for row, edits in zip(rows, branches, strict=True):
        for p, token in edits:
            row[p - start] = token
    return Branches(rows, start, (start, stop))


def _shadow(window: Window, lead: int, mask_id: int) -> Branches:
    """Lay masks over the rows that predict the window; each sees all but the token it predicts."""
    rows = np.arange(window.start - lead, window.stop - lead)
    return Branches(np.full((1, len(rows)), mask_id), int(rows[0]), (rows + lead, rows + lead + 1))


@dataclass(slots=True)
class Group:
    """Strips that share one forward, padded to r live rows and g branches of w rows."""

    strips: list[Strip]
    r: int
    g: int
    w: int

    @property
    def n_rows(self) -> int:
        """Rows of one padded strip, T."""
        return self.r + self.g * self.w

    @property
    def shares_slots(self) -> bool:
        """Whether several strips read one slot of frozen keys, so that none may write to it."""
        if len(self.strips) == 1:
            return False
        slots = [strip.slot for strip in self.strips if strip.slot is not None]
        return len(set(slots)) < len(slots)


def arrange(readings: Sequence[Reading], lead: int) -> tuple[list[Group], list[Ints]]:
    """Sort all that was laid out into forwards; return them, and which of its rows each one reads."""
    strips = {id(draft.strip): draft.strip for reading in readings for draft in reading.drafts}
    groups = group(list(strips.values()))
    return groups, assign_rows(groups, readings, lead)


def group(strips: Sequence[Strip]) -> list[Group]:
    """Sort strips into forwards: same use of the store, similar shape."""
    if len(strips) == 1:
        return _split_by_padding(list(strips))
    classes: dict[tuple[bool, bool], list[Strip]] = {}
    for strip in strips:
        classes.setdefault((strip.slot is not None, strip.keeps is not None), []).append(strip)
    groups = []
    # Strips that keep come last: a what-if may have written over live rows of the slot it shares.
    for _, members in sorted(classes.items()):
        if len(members) > 1:
            members.sort(key=lambda s: (s.n_branches, len(s.pos), s.slot or 0))
        groups.extend(_split_by_padding(members))
    return groups


def _split_by_padding(strips: list[Strip]) -> list[Group]:
    """Cut a sorted list of strips wherever padding them together would waste too much."""
    groups: list[Group] = []
    n_real = 0
    for strip in strips:
        r, g = len(strip.pos), strip.n_branches
        w = max((some.ids.shape[1] for some in strip.branches), default=0)
        n_real += r + g * w
        if groups:
            now = groups[-1]
            wider = Group([*now.strips, strip], max(r, now.r), max(g, now.g), max(w, now.w))
            n_padded = wider.n_rows * len(wider.strips)
            if n_padded <= PADDING_LIMIT * n_real or len(now.strips) < SMALL_GROUP:
                now.strips.append(strip)
                now.r, now.g, now.w = wider.r, wider.g, wider.w
                continue
        groups.append(Group([strip], r, g, w))
        n_real = r + g * w
    return groups


def assign_rows(groups: Sequence[Group], readings: Sequence[Reading], lead: int) -> list[Ints]:
    """Give every draft its place among the rows read; return, per group, the indices of those rows."""
    home = {id(strip): (n, i) for n, group in enumerate(groups) for i, strip in enumerate(group.strips)}
    found: list[list[tuple[Draft, Ints]]] = [[] for _ in groups]
    for reading in readings:
        for draft in reading.drafts:
            n, i = home[id(draft.strip)]
            found[n].append((draft, _rows_of(draft, groups[n], i, lead)))
    start = 0
    for draft, rows in (pair for pairs in found for pair in pairs):
        draft.rows = slice(start, start + len(rows))
        start += len(rows)
    return [np.concatenate([rows for _, rows in pairs]) for pairs in found]


def _rows_of(draft: Draft, of: Group, number: int, lead: int) -> Ints:
    """Return where a draft's positions are read among the rows of its group; `number` is its strip's."""
    start, live = number * of.n_rows, draft.strip.pos
    if draft.branch is not None:
        return draft.pos + (start + of.r + draft.branch * of.w - lead - draft.start)
    if live[-1] - live[0] == len(live) - 1:  # without gaps, as most caches have it
        return draft.pos + (start - lead - int(live[0]))
    rows: Ints = start + np.searchsorted(live, draft.pos - lead)
    return rows
