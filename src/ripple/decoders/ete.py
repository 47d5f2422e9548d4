"""ETE-style: exploit across blocks, explore where the model is half sure.

Explore-Then-Exploit (arXiv 2511.21103) has no public code and its full text was not available to us, so
this is labelled ETE-*style*. Known and kept: the exploit condition (1 + |A|)(1 - p) <= f, commits beyond the
current block, exploration of top-1 tokens at positions near a prescribed confidence in parallel,
keeping the one that unlocks most. Our own choices: how many positions (k), which confidence
(target), how far past the block (span), and that a tie with not exploring leaves the position masked.
Reported second-hand: exploration near confidence 0.2, weighted to later positions. `ete/reported` does so;
how much later positions count (late) is again our choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ripple.canvas import Canvas, Floats, Rows, Window
from ripple.decoders.base import Conversation, Decoder, Pick, commit, longest_prefix, place, ranking
from ripple.fields import param
from ripple.look import Ask, Look


@dataclass(frozen=True)
class Ete(Decoder):
    """Commit by the factor condition, then try k half-sure tokens and keep the most unlocking one."""

    name = "ete"
    paper = "ETE-style, after arXiv 2511.21103"

    f: float = param(1.0, "f of the exploit condition", within="[0, inf)")
    target: float = param(0.5, "the confidence near which positions are explored", within="(0, 1]")
    k: int = param(4, "positions explored per step", within="[1, 256]")
    span: int = param(1, "blocks past the current one that may be committed", within="[0, inf)")
    late: float = param(
        0.0, "preference for later positions: the last one's distance to target counts 1 + late times less",
        within="[0, inf)",
    )  # fmt: skip

    def decode(self, canvas: Canvas) -> Conversation:
        """Exploit, explore, adopt, until each block is full."""
        for block in canvas.windows():
            if not len(canvas.masked(block)):
                continue  # filled while an earlier block was decoded
            window = Window(block.start, min(block.stop + self.span * canvas.block, len(canvas.ids)))
            look, adopted = (yield Ask(window)).base, 0
            while len(canvas.masked(block)):
                pick = self._exploit(look)
                commit(canvas, look, pick)
                if not len(canvas.masked(block)):
                    break
                rest = look.keep(~pick[0])
                most = min(self.k, canvas.branches_for(window))
                near = np.argsort(self._distance(rest, window), kind="stable")[:most]
                branches = tuple(((int(rest.pos[i]), int(rest.token[i])),) for i in near)
                answer = yield Ask(window, branches, adopted=adopted)
                unlocked = [self._n_unlocked(branch) for branch in (answer.base, *answer.branches)]
                adopted = int(np.argmax(unlocked))  # the base comes first: exploring must unlock more
                look = answer.base
                if adopted:
                    i = near[adopted - 1]
                    place(canvas, int(rest.pos[i]), int(rest.token[i]), float(rest.p[i]), "branch")
                    look = answer.branches[adopted - 1]

    def _accepted(self, look: Look) -> Rows:
        c = look.p[ranking(look.p)].astype(np.float64)
        n = np.arange(1, len(c) + 1)  # |A|, the candidate included
        accepted: Rows = (1 + n) * (1 - c) <= self.f
        return accepted

    def _exploit(self, look: Look) -> Pick:
        return longest_prefix(look.p, self._accepted(look))

    def _distance(self, look: Look, window: Window) -> Floats:
        """Return how far each row is from what is worth exploring."""
        way = (look.pos - window.start) / max(window.stop - window.start - 1, 1)  # 0: first, 1: last
        distance: Floats = np.abs(look.p - np.float32(self.target)) / (1 + self.late * way)
        return distance

    def _n_unlocked(self, look: Look) -> int:
        accepted = self._accepted(look)
        return len(look) if accepted.all() else int(np.argmin(accepted))
