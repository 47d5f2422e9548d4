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
from ripple.engine.plan import Reading
from ripple.engine.stats import KL_FLOOR, kl_to

Tensor = torch.Tensor
NEVER_SEEN = math.log(KL_FLOOR)  # before the first look every probability is 0


@dataclass(slots=True)
class Seen:
    """One draft's rows of a comparison, in case the decoder goes on from it."""

    places: Ints  # rows of the table
    rows: Ints  # rows of what was seen
    log_p: Tensor  # [rows of that tick, V]


@dataclass(slots=True)
class LookMemory:
    """Where the previous looks of one request stand in the table."""

    start: int
    length: int
    prompt_len: int
    drafts: list[Seen] = field(default_factory=list)  # of its last forward: base, then branches
    ahead: Seen | None = None

    def kept(self, follows: int) -> list[Seen]:
        """Return what the decoder went on from: the draft it followed, and all that lies ahead."""
        return self.drafts[follows : follows + 1] + ([self.ahead] if self.ahead else [])


# Of a request that wants KL: its memory, what it reads now, and which draft of its last forward it follows.
Comparison = tuple[LookMemory, Reading, int]


class LookBook:
    """The previous look at every response position, updated when the next ask says which draft was kept."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._table = torch.empty(0, vocab_size, device=device)
        self._used = 0
        self._free: dict[int, list[int]] = {}  # length -> starts of parts that were given back

    def open(self, length: int, prompt_len: int) -> LookMemory:
        """Give a request its part of the table."""
        free = self._free.get(length)
        start = free.pop() if free else self._used
        self._used = max(self._used, start + length)
        if self._used > len(self._table):
            grown = self._table.new_empty(max(self._used, 2 * len(self._table)), self._table.shape[1])
            grown[: len(self._table)] = self._table
            self._table = grown
        self._table[start : start + length] = NEVER_SEEN
        return LookMemory(start, length, prompt_len)

    def close(self, memory: LookMemory) -> None:
        """Take a part back."""
        self._free.setdefault(memory.length, []).append(memory.start)

    def compare(self, looks: Sequence[Comparison], logp: Tensor) -> Tensor:
        """Return the KL of base, branches and ahead against the previous look, request by request."""
        self._keep(looks)
        seen: list[Seen] = []
        read: list[Ints] = []
        n = 0
        for memory, reading, _ in looks:
            memory.drafts, memory.ahead = [], None
            for draft in reading.looks:
                places = draft.pos + (memory.start - memory.prompt_len)
                seen.append(Seen(places, np.arange(n, n + len(places)), logp))
                read.append(np.arange(draft.rows.start, draft.rows.stop))
                n += len(places)
                if draft is reading.ahead:
                    memory.ahead = seen[-1]
                else:
                    memory.drafts.append(seen[-1])
        rows, places = self._there(read, [one.places for one in seen])
        kl, log_now = kl_to(logp[rows], self._table[places])
        for one in seen:
            one.log_p = log_now
        return kl

    def _keep(self, looks: Sequence[Comparison]) -> None:
        """Write the looks that the decoders went on from into the table."""
        by_source: dict[int, list[Seen]] = {}  # nearly always one: the last tick
        for memory, _, follows in looks:
            for one in memory.kept(follows):
                by_source.setdefault(id(one.log_p), []).append(one)
        for kept in by_source.values():
            rows, places = self._there([one.rows for one in kept], [one.places for one in kept])
            self._table[places] = kept[0].log_p[rows]

    def _there(self, rows: list[Ints], places: list[Ints]) -> Tensor:
        """Bring two lists of row numbers to the device in one copy, [2, n]."""
        both = np.stack([np.concatenate(rows), np.concatenate(places)])
        return torch.from_numpy(both).to(self._table.device)
