"""ETE-style: exploit across blocks, explore where the model is half sure.

Explore-Then-Exploit (arXiv 2511.21103) has no public code and its full text was not available to us, so
this is labelled ETE-*style*. Known and kept: the exploit condition (1 + |A|)(1 - p) <= f, commits beyond the
current block, exploration of top-1 tokens at positions near a prescribed confidence in parallel,
keeping the one that unlocks most. Our own choices: how many positions (k), which confidence
(target), how far past the block (span), and that a tie with not exploring leaves the position masked.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ripple.canvas import Canvas, Rows, Window
from ripple.decoders.base import (
    Conversation,
    Decoder,
    Pick,
    check_at_least,
    check_count,
    check_share,
    commit,
    longest_prefix,
    place,
    ranking,
)
from ripple.look import Ask, Look


@dataclass(frozen=True)
class Ete(Decoder):
    """Commit by the factor condition, then try k half-sure tokens and keep the most unlocking one."""

    name = "ete"
    paper = "ETE-style, after arXiv 2511.21103"

    f: float = 1.0  # f of the exploit condition
    target: float = 0.5  # the confidence near which positions are explored
    k: int = 4  # positions explored per step
    span: int = 1  # blocks past the current one that may be committed

    def __post_init__(self) -> None:
        check_at_least(self, 0, "f")
        check_share(self, "target")
        check_count(self, 1, "k")
        check_count(self, 0, "span")

    def decode(self, canvas: Canvas) -> Conversation:
        """Exploit, explore, adopt, until each block is full."""
        for block in canvas.windows():
            if not len(canvas.masked(block)):
                continue  # filled while an earlier block was decoded
            window = Window(block.start, min(block.stop + self.span * canvas.block, len(canvas.ids)))
            look, follows = (yield Ask(window)).base, 0
            while len(canvas.masked(block)):
                pick = self._exploit(look)
                commit(canvas, look, pick)
                if not len(canvas.masked(block)):
                    break
                rest = look.keep(~pick[0])
                near = np.argsort(np.abs(rest.p - self.target), kind="stable")[: self.k]
                branches = tuple(((int(rest.pos[i]), int(rest.token[i])),) for i in near)
                answer = yield Ask(window, branches, follows=follows)
                unlocked = [self._n_unlocked(branch) for branch in (answer.base, *answer.branches)]
                follows = int(np.argmax(unlocked))  # the base comes first: exploring must unlock more
                look = answer.base
                if follows:
                    i = near[follows - 1]
                    place(canvas, int(rest.pos[i]), int(rest.token[i]), float(rest.p[i]), "branch")
                    look = answer.branches[follows - 1]

    def _accepted(self, look: Look) -> Rows:
        c = look.p[ranking(look.p)].astype(np.float64)
        n = np.arange(1, len(c) + 1)  # |A|, the candidate included
        accepted: Rows = (1 + n) * (1 - c) <= self.f
        return accepted

    def _exploit(self, look: Look) -> Pick:
        return longest_prefix(look.p, self._accepted(look))

    def _n_unlocked(self, look: Look) -> int:
        accepted = self._accepted(look)
        return len(look) if accepted.all() else int(np.argmin(accepted))
