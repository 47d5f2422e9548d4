"""What a decoder asks of the model and what it hears back: small numpy tables, never logits.

One `Ask` is one forward. Its base is the canvas as it stands; `branches` are what-ifs on a copy of the
window; `shadow` re-predicts tokens that are already revealed, each one hidden from itself.
A `Look` is a table whose rows are the masked positions that were read, in ascending order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ripple.canvas import Floats, Ints, Rows, Window

Edits = tuple[tuple[int, int], ...]  # (absolute position, token id) pairs written into a branch


@dataclass(frozen=True, slots=True)
class Wants:
    """Which statistics a decoder's looks must carry beside token, p and entropy."""

    top: int = 1  # how many of the most probable tokens per row
    kl: bool = False  # KL(p now || p at the session's previous look), per row


@dataclass(frozen=True, slots=True)
class Ask:
    """One forward that a decoder waits for."""

    window: Window
    branches: tuple[Edits, ...] = ()
    probes: tuple[tuple[int, int, int], ...] = ()  # (draft, position, token): draft 0 = base, i = branch i-1
    shadow: tuple[int, ...] = ()  # revealed positions to re-predict, leave-one-out
    ahead: bool = False  # also read masked rows after the window, where they are recomputed
    follows: int = 0  # which draft of the previous ask became the canvas: 0 = base, i = branch i-1


@dataclass(slots=True)  # not frozen: one is made per branch and step, and freezing doubles its cost
class Look:
    """What one forward says about n masked positions. All arrays have n rows, aligned with `pos`."""

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
