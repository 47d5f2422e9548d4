"""Many batch rows, few forwards: rows are grouped so that padding stays small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ripple.canvas import Ints
from ripple.engine.layout import AskLayout, BatchRow, ReadSpan

PADDING_LIMIT = 1.25  # a group may hold this many times the positions that are really needed
SMALL_GROUP = 4  # below this many rows a split costs more than the padding it saves


@dataclass(slots=True)
class RowGroup:
    """Batch rows that share one forward, padded to r live positions and g branches of w positions."""

    members: list[BatchRow]
    r: int
    g: int
    w: int

    @property
    def width(self) -> int:
        """Positions of one padded row, T."""
        return self.r + self.g * self.w

    @property
    def is_thin(self) -> bool:
        """Whether some row's branches hide the canvas's keys one by one, not as a range."""
        return any(some.hides_own for row in self.members for some in row.branches)

    @property
    def shares_slots(self) -> bool:
        """Whether several rows read one slot of frozen keys, so that none may write to it."""
        if len(self.members) == 1:
            return False
        slots = [row.slot for row in self.members if row.slot is not None]
        return len(set(slots)) < len(slots)


def group_layouts(layouts: Sequence[AskLayout]) -> tuple[list[RowGroup], list[Ints]]:
    """Sort all batch rows into forwards; return them, and which of its positions each one reads."""
    rows = {id(span.row): span.row for layout in layouts for span in layout.spans}
    groups = group_rows(list(rows.values()))
    return groups, assign_rows(groups, layouts)


def group_rows(rows: Sequence[BatchRow]) -> list[RowGroup]:
    """Sort batch rows into forwards: same use of the key store and of limits, similar shape."""
    if len(rows) == 1:
        return _split_by_padding(list(rows))
    classes: dict[tuple[bool, bool, bool], list[BatchRow]] = {}
    for row in rows:
        kind = (row.slot is not None, row.store_slot is not None, row.limits is not None)
        classes.setdefault(kind, []).append(row)
    groups = []
    # Rows that store come last: a what-if may have written over live positions of the slot it shares.
    for _, members in sorted(classes.items()):
        if len(members) > 1:
            members.sort(key=lambda row: (row.n_branches, len(row.pos), row.slot or 0))
        groups.extend(_split_by_padding(members))
    return groups


def _split_by_padding(rows: list[BatchRow]) -> list[RowGroup]:
    """Cut a sorted list of rows wherever padding them together would waste too much."""
    groups: list[RowGroup] = []
    n_real = 0
    for row in rows:
        r, g = len(row.pos), row.n_branches
        w = max((some.ids.shape[1] for some in row.branches), default=0)
        n_real += r + g * w
        if groups:
            last = groups[-1]
            wider = RowGroup([*last.members, row], max(r, last.r), max(g, last.g), max(w, last.w))
            n_padded = wider.width * len(wider.members)
            if n_padded <= PADDING_LIMIT * n_real or len(last.members) < SMALL_GROUP:
                last.members.append(row)
                last.r, last.g, last.w = wider.r, wider.g, wider.w
                continue
        groups.append(RowGroup([row], r, g, w))
        n_real = r + g * w
    return groups


def assign_rows(groups: Sequence[RowGroup], layouts: Sequence[AskLayout]) -> list[Ints]:
    """Give every span its place among the rows read; return, per group, the indices of those rows."""
    home = {id(row): (n, i) for n, group in enumerate(groups) for i, row in enumerate(group.members)}
    reads: list[list[tuple[ReadSpan, Ints]]] = [[] for _ in groups]
    for layout in layouts:
        for span in layout.spans:
            n, i = home[id(span.row)]
            reads[n].append((span, _indices(span, groups[n], i)))
    start = 0
    for span, indices in (pair for of_group in reads for pair in of_group):
        span.rows = slice(start, start + len(indices))
        start += len(indices)
    return [np.concatenate([indices for _, indices in of_group]) for of_group in reads]


def _indices(span: ReadSpan, group: RowGroup, number: int) -> Ints:
    """Return where a span's positions are read in its group; `number` is its batch row's."""
    start, pos = number * group.width, span.row.pos
    if span.branch is not None:
        assert span.branch_pos is not None
        start, pos = start + group.r + span.branch * group.w, span.branch_pos
    if pos[-1] - pos[0] == len(pos) - 1:  # without gaps, as most have it
        return span.pos + (start - span.lead - int(pos[0]))
    indices: Ints = start + np.searchsorted(pos, span.pos - span.lead)
    return indices
