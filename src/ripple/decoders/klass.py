"""KLASS: commit what is both confident and no longer moving."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ripple.canvas import Canvas
from ripple.decoders.base import (
    Pick,
    Picker,
    Rule,
    check_at_least,
    check_count,
    check_share,
    qualified_or_best,
)
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

    tau: float = 0.9  # τ, strict
    eps_kl: float = 0.01  # ε_KL, nats
    history: int = 2  # n, steps that must be stable
    stock_dream: bool = False  # compatibility: the released Dream rule, P_max >= τ and no guard in new blocks

    def __post_init__(self) -> None:
        check_share(self, "tau")
        check_at_least(self, 0, "eps_kl")
        check_count(self, 1, "history")

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
                    assert seen.kl is not None, "KLASS needs looks with KL"
                    kl_history[seen.pos] = np.roll(kl_history[seen.pos], -1, axis=1)
                    kl_history[seen.pos, -1] = seen.kl
            block = (int(look.pos[0]) - canvas.prompt_len) // canvas.block
            step = step + 1 if block == block_of else 0
            block_of = block
            is_stable = (kl_history[look.pos] < self.eps_kl).all(axis=1)
            if self.stock_dream:
                return qualified_or_best(is_stable & (look.p >= self.tau), look.p)
            may_be_stable = step >= self.history - 1  # enough looks inside this block
            return qualified_or_best(is_stable & may_be_stable & (look.p > self.tau), look.p)

        return pick
