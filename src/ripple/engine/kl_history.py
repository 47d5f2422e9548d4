"""What each request's model said last time, so that KLASS can ask how much it moved.

Kept on the device as log-probabilities, one row of a shared table for every response position of every
request that wants KL, so that a tick compares all of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from ripple.canvas import Ints
from ripple.engine.layout import AskLayout
from ripple.engine.stats import KL_FLOOR, kl_to

Tensor = torch.Tensor
NEVER_SEEN = math.log(KL_FLOOR)  # before the first look every probability is 0


@dataclass(slots=True)
class SeenRows:
    """One look's rows of a comparison, in case the decoder goes on from it."""

    places: Ints  # rows of the table
    rows: Ints  # rows of what was seen
    log_p: Tensor  # [rows of that tick, V]


@dataclass(slots=True)
class KLEntry:
    """Where the previous looks of one request stand in the table."""

    start: int
    length: int
    canvases: list[SeenRows] = field(default_factory=list)  # of its last forward: base, then branches
    ahead: SeenRows | None = None
    _next: tuple[list[SeenRows], SeenRows | None] = field(default_factory=lambda: ([], None))

    def adopted(self, number: int) -> list[SeenRows]:
        """Return what the decoder went on from: the canvas it adopted, and all that lies ahead."""
        return self.canvases[number : number + 1] + ([self.ahead] if self.ahead else [])

    def note(self, canvases: list[SeenRows], ahead: SeenRows | None) -> None:
        """Hold the looks of a forward whose answer has not been delivered yet."""
        self._next = canvases, ahead

    def advance(self) -> None:
        """Take note that the answer was delivered."""
        self.canvases, self.ahead = self._next


# Of a request that wants KL: its entry, what it reads now, which canvas of its last forward it went on
# from, and the length of its prompt.
Comparison = tuple[KLEntry, AskLayout, int, int]


class KLHistory:
    """The previous look at every response position; the next ask says which canvas was adopted."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._table = torch.empty(0, vocab_size, device=device)
        # (start, length) of the unused parts, in order, never adjacent
        self._free: list[tuple[int, int]] = []

    @property
    def n_rows(self) -> int:
        """Rows that are reserved on the device."""
        return len(self._table)

    def open(self, length: int) -> KLEntry:
        """Give a request its part of the table: the first gap that is long enough, or new rows at the end."""
        free, n = self._free.copy(), len(self._table)
        start, n_after = _take(free, n, length)
        if n_after > n:
            grown = self._table.new_empty(n_after, self._table.shape[1])
            grown[:n] = self._table
            self._table = grown
        self._free = free
        self._table[start : start + length] = NEVER_SEEN
        return KLEntry(start, length)

    def rows_with(self, lengths: Sequence[int]) -> int:
        """Return how many rows the table has once parts of these lengths are opened in this order."""
        free, n = self._free.copy(), len(self._table)
        for length in lengths:
            _, n = _take(free, n, length)
        return n

    def close(self, entry: KLEntry) -> None:
        """Take a part back and join it with its neighbours; when all are back, the memory is released."""
        merged: list[tuple[int, int]] = []
        for start, length in sorted([*self._free, (entry.start, entry.length)]):
            if merged and merged[-1][0] + merged[-1][1] == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self._free = merged
        if merged == [(0, len(self._table))]:
            self._table, self._free = self._table[:0].clone(), []

    def compare(self, comparisons: Sequence[Comparison], logp: Tensor) -> Tensor:
        """Return the KL of base, branches and ahead against the previous look, request by request.

        Nothing is forgotten until an entry advances: the same comparison can be made again.
        """
        self._keep_adopted(comparisons)
        seen: list[SeenRows] = []
        read: list[Ints] = []
        n = 0
        for entry, layout, _, prompt_len in comparisons:
            canvases, ahead = [], None
            for span in layout.looks:
                places = span.pos + (entry.start - prompt_len)
                seen.append(SeenRows(places, np.arange(n, n + len(places)), logp))
                read.append(np.arange(span.rows.start, span.rows.stop))
                n += len(places)
                if span is layout.ahead:
                    ahead = seen[-1]
                else:
                    canvases.append(seen[-1])
            entry.note(canvases, ahead)
        rows, at = self._on_device(read, [one.places for one in seen])
        kl, log_now = kl_to(logp[rows], self._table[at])
        for one in seen:
            one.log_p = log_now
        return kl

    def _keep_adopted(self, comparisons: Sequence[Comparison]) -> None:
        """Write the looks that the decoders went on from into the table."""
        by_source: dict[int, list[SeenRows]] = {}  # nearly always one: the last tick
        for entry, _, number, _ in comparisons:
            for one in entry.adopted(number):
                by_source.setdefault(id(one.log_p), []).append(one)
        for kept in by_source.values():
            rows, at = self._on_device([one.rows for one in kept], [one.places for one in kept])
            self._table[at] = kept[0].log_p[rows]

    def _on_device(self, rows: list[Ints], places: list[Ints]) -> Tensor:
        """Bring two lists of row numbers to the device in one copy, [2, n]."""
        both = np.stack([np.concatenate(rows), np.concatenate(places)])
        return torch.from_numpy(both).to(self._table.device)


def _take(free: list[tuple[int, int]], n: int, length: int) -> tuple[int, int]:
    """Take a part of a table of n rows out of its unused ones; return its start and the rows there are then.

    Where no gap is long enough, the part goes to the end, on an unused one that lies there.
    """
    for i, (start, room) in enumerate(free):
        if room >= length:
            free[i : i + 1] = [(start + length, room - length)] if room > length else []
            return start, n
    start = free.pop()[0] if free and sum(free[-1]) == n else n
    return start, start + length
