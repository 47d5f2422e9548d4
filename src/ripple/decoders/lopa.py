"""LoPA: try the k surest open positions one commit ahead and keep the branch with the brightest future."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ripple.canvas import Canvas
from ripple.decoders.base import Conversation, Decoder, commit, place, ranking
from ripple.decoders.confidence import Confidence
from ripple.fields import param
from ripple.look import Ask, Edits, Look


@dataclass(frozen=True)
class Lopa(Decoder):
    """Branch on one extra top-1 token each, score by mean certainty of what is left, adopt the best.

    k counts the branches beside the base. Released configurations rank and score by entropy alone or by
    probability alone; here positions are ranked by confidence and branches scored by entropy.
    """

    name = "lopa"
    paper = "LoPA, arXiv 2512.16229"

    tau: float = param(0.9, "τ of the standard commit, inclusive", within="(0, 1]")
    k: int = param(3, "lookahead branches beside the base", within="[1, 256]")
    rank: str = param("confidence", "which positions to branch on", choices=("confidence", "entropy"))
    score: str = param(
        "entropy", "branch score: mean -H or mean P_max of what is left", choices=("entropy", "confidence")
    )

    def decode(self, canvas: Canvas) -> Conversation:
        """Commit, branch, adopt the winner and reuse its look."""
        standard = Confidence(self.tau)
        for window in canvas.windows():
            look, adopted = (yield Ask(window)).base, 0
            while len(look):
                pick = standard.pick(look)
                commit(canvas, look, pick)
                rest = look.keep(~pick[0])
                if not len(rest):
                    break
                most = min(self.k, canvas.branches_for(window))
                best_rows = ranking(rest.p if self.rank == "confidence" else -rest.entropy)[:most]
                branches = tuple(((int(rest.pos[i]), int(rest.token[i])),) for i in best_rows)
                answer = yield Ask(window, branches, adopted=adopted)

                scores = [self._future(branch) for branch in (*answer.branches, answer.base)]
                best = int(np.argmax(scores))  # the base comes last, so a branch wins ties
                canvas.note("branches", partial(_facts, branches, scores))
                if best < len(branches):
                    i = best_rows[best]
                    place(canvas, int(rest.pos[i]), int(rest.token[i]), float(rest.p[i]), "branch")
                    look, adopted = answer.branches[best], best + 1
                else:
                    look, adopted = answer.base, 0

    def _future(self, look: Look) -> float:
        if not len(look):
            return 1.0  # nothing left to decide: better than any uncertain future
        return float(look.p.mean() if self.score == "confidence" else -look.entropy.mean())


def _facts(branches: tuple[Edits, ...], scores: list[float]) -> dict[str, Any]:
    """Return what the trace says of one choice among branches; the last score is the base's."""
    best = int(np.argmax(scores))
    return {
        "pos": [edits[0][0] for edits in branches],
        "token": [edits[0][1] for edits in branches],
        "score": scores[:-1],
        "score_base": scores[-1],
        "chosen": best if best < len(branches) else None,
    }
