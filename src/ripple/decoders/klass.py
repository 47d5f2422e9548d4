"""KLASS: commit what is both confident and no longer moving."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ripple.canvas import Canvas
from ripple.decoders.base import Pick, Picker, Rule, qualified_or_best
from ripple.errors import RippleError
from ripple.fields import param
from ripple.look import Look, Wants


@dataclass(frozen=True)
class Klass(Rule):
    """Commit positions with P_max > τ whose last n KL steps all stayed below ε_KL.

    The KL of a position is taken against the previous look at it, in whichever block, so later blocks arrive
    with a history. Before the first look the previous distribution counts as zero, which makes
    the first KL about 27 nats. In caches that do not recompute a row its history stands still.
    """

    name = "klass"
    paper = "KLASS, arXiv 2511.05664"
    reads_ahead = True

    tau: float = param(0.9, "τ: commit above this confidence", within="(0, 1]")
    eps_kl: float = param(0.01, "ε_KL: a step below this KL is stable, nats", within="[0, inf)")
    history: int = param(2, "n: last steps that must all be stable", within="[1, inf)")
    match_klass_dream: bool = param(False, "the released Dream rule: P_max >= τ, and no guard in new blocks")

    @property
    def wants(self) -> Wants:
        """The KL to the previous look."""
        return Wants(kl=True)

    def picker(self, canvas: Canvas) -> Picker:
        """Keep the KL history of every position and the step count of the current block."""
        kl_history = np.zeros((len(canvas.ids), self.history), dtype=np.float32)
        block_of, step = -1, 0

        def pick(look: Look, ahead: Look | None) -> Pick:
            nonlocal block_of, step
            for seen in (look, ahead):
                if seen is not None and len(seen):
                    if seen.kl is None:
                        raise RippleError("klass needs looks with the KL, which Wants(kl=True) asks for.")
                    kl_history[seen.pos] = np.roll(kl_history[seen.pos], -1, axis=1)
                    kl_history[seen.pos, -1] = seen.kl
            block = canvas.block_at(int(look.pos[0])).start
            step = step + 1 if block == block_of else 0
            block_of = block
            is_stable = (kl_history[look.pos] < self.eps_kl).all(axis=1)
            if self.match_klass_dream:
                return qualified_or_best(is_stable & (look.p >= self.tau), look.p)
            may_be_stable = step >= self.history - 1  # enough looks inside this block
            return qualified_or_best(is_stable & may_be_stable & (look.p > self.tau), look.p)

        return pick
