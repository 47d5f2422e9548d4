"""WINO: draft generously, verify every drafted token leave-one-out, mask the doubtful ones again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ripple.canvas import Canvas
from ripple.decoders.base import Conversation, Decoder, commit, top_rows
from ripple.fields import param
from ripple.look import Ask

FIRST_ALLOWANCE = 30  # the accept count assumed before a block's first draft
DRAFT_SHARE, DRAFT_LEAST, DRAFT_MOST = 0.7, 5, 20  # cap on one draft: clip(0.7 |M|, 5, 20)


@dataclass(frozen=True)
class Wino(Decoder):
    """Draft at P_max > τ1, revoke earlier tokens whose shadow probability fell below τ2.

    One forward serves both: the shadow rows see the whole canvas but for the token they judge. A revocation
    is always at least one smaller than the draft before it, so the block fills up.
    """

    name = "wino"
    paper = "WINO, arXiv 2507.18578"
    revokes = True

    tau1: float = param(0.6, "τ1: draft above this confidence", within="(0, 1]")
    tau2: float = param(0.9, "τ2: revoke below this leave-one-out probability", within="(0, 1]")

    def decode(self, canvas: Canvas) -> Conversation:
        """Draft and verify until each block is full; the last draft of a block is not verified."""
        for window in canvas.windows():
            n_drafted_before = FIRST_ALLOWANCE
            while n_masked := len(canvas.masked(window)):
                committed = canvas.revealed(window)
                answer = yield Ask(window, shadow=tuple(committed.tolist()))
                look = answer.base

                wide = look.p > self.tau1
                most = int(np.clip(int(DRAFT_SHARE * n_masked), DRAFT_LEAST, DRAFT_MOST))
                if (n_wide := int(wide.sum())) > most or n_wide == 0:
                    wide = top_rows(look.p, most if n_wide else 1)
                n_drafted = int(wide.sum())

                doubtful = committed[answer.shadow < self.tau2] if n_drafted > 1 else committed[:0]
                if len(doubtful) >= n_drafted_before:  # never take back as much as came in last time
                    worst = np.argsort(answer.shadow, kind="stable")[: n_drafted_before - 1]
                    doubtful = committed[np.sort(worst)]
                commit(canvas, look, (wide, "standard" if n_wide else "fallback"))
                if len(doubtful):
                    canvas.revoke(doubtful, "doubt")
                n_drafted_before = n_drafted
