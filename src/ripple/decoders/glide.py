"""Glide: a sliding window in which entropy, not position, says how far ahead it is safe to act.

It grew out of Ripple-Pivot Search (rps.py): no blocks (`slide`), commits and pivots only where the entropies
to the left add up to at most `cap` nats, a search instead of a forced commit (`hold`), perhaps two pivots in
a lookahead (`pivots`). docs/glide.md says what each part gives; without them it is RPS.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ripple.canvas import MOST_BRANCHES, Canvas, Ints, Rows, Window
from ripple.decoders.base import Conversation, Decoder, commit, place, top_rows
from ripple.decoders.rps import Doubles, score, truncated_entropy
from ripple.fields import param
from ripple.look import Answer, Ask, Edits, Look, Wants

LEAST_WIDTH, USUAL_BRANCHES = 8, 5  # how a window shrinks under load


class Pivot(NamedTuple):
    """A masked position and the tokens that are tried there, most probable first."""

    pos: int
    token: Ints


class Trial(NamedTuple):
    """What one branch tries: a token at the first pivot, and perhaps one at the second."""

    edits: Edits
    first: int  # the number of the branch that holds the first token alone


@dataclass(frozen=True)
class Glide(Decoder):
    """Slide a window over the masks; commit and search where little is undecided to the left."""

    name = "glide"
    paper = "this project, docs/glide.md"
    fills_end = True

    width: int = param(36, "W: positions in the window", within="[1, inf)")
    cap: float | None = param(
        4.0, "near positions have at most so many nats to their left; none: all are near", within="[0, inf)"
    )
    tau: float = param(0.9, "τ: commit near positions at P_max >= τ", within="(0, 1]")
    tau_far: float = param(0.98, "τ_far: commit the others at P_max >= τ_far", within="(0, 1]")
    tau_pivot: float = param(0.9, "τ_pivot: least mass of a pivot's truncated support", within="[0, inf)")
    k_max: int = param(10, "k_max: size of the truncated support", within="[1, 255]")
    r: float = param(0.1, "r: reachability ratio to the pivot's top-1 probability", within="(0, 1]")
    lam: float = param(0.05, "λ: weight of plausibility", within="[0, inf)")
    pivots: int = param(1, "pivots per lookahead", within="[1, 2]")
    joint: int = param(3, "tokens of each of two pivots that are tried together", within="[1, 15]")
    branches: int | None = param(None, "most tokens of a pivot that are tried; none: any", within="[2, 255]")
    hold: bool = param(True, "where nothing is sure, search instead of committing the surest")
    slide: bool = param(True, "slide the window; false: the canvas's blocks, one after the other")

    @property
    def wants(self) -> Wants:
        """The truncated support."""
        return Wants(top=self.k_max)

    def decode(self, canvas: Canvas) -> Conversation:
        """Commit what is sure, search a pivot or two, go on from the winner's look."""
        look: Look | None = None
        adopted = 0
        while canvas.n_masked:
            if not look:
                look, adopted = (yield Ask(self._window(canvas), adopted=adopted)).base, 0
            sure = self._sure(look)
            pivots = self._pivots(look, canvas) if self.hold and not sure.any() else []
            if not pivots:
                pick = (sure, "standard") if sure.any() else (self._forced(look), "fallback")
                commit(canvas, look, pick)
                look = look.keep(~pick[0])
                pivots = self._pivots(look, canvas)
            if not pivots:
                look = None
                continue
            window = self._window(canvas)
            candidates = self._candidates(pivots)[: canvas.branches_for(window)]
            answer = yield _lookahead(window, candidates, adopted)
            scores = self._scores(answer, pivots, candidates)
            if self.hold and not self._sure(answer.base).any():
                scores[0] = -np.inf  # staying masked would be a forward without a commit
            canvas.note("search", partial(_facts, look, pivots, candidates, answer, scores))
            look, adopted = answer.base, int(np.argmax(scores))  # staying masked comes first
            if adopted:
                look, winner = answer.branches[adopted - 1], candidates[adopted - 1]
                for (pos, token), i in zip(winner.edits, (winner.first, adopted - 1), strict=False):
                    place(canvas, pos, token, float(answer.probes[i]), "pivot")

    def _window(self, canvas: Canvas) -> Window:
        """Return the window from the first masked position on, or its block; under load it narrows."""
        first = canvas.prompt_len + int(np.argmax(canvas.response == canvas.mask_id))
        if self.slide:
            width = min(self.width, max(LEAST_WIDTH, canvas.most_rows // USUAL_BRANCHES))
            return Window(first, min(first + width, len(canvas.ids)))
        return next(block for block in canvas.windows() if first < block.stop)

    def _near(self, look: Look) -> Rows:
        """Say which rows have at most `cap` nats of entropy to their left."""
        entropy = look.entropy.astype(np.float64)
        near: Rows = np.cumsum(entropy) - entropy <= (np.inf if self.cap is None else self.cap)
        return near

    def _sure(self, look: Look) -> Rows:
        """Say which rows are committed as they are."""
        sure: Rows = look.p >= np.where(self._near(look), self.tau, self.tau_far).astype(np.float32)
        return sure

    def _forced(self, look: Look) -> Rows:
        """Return what is committed where nothing is sure and nothing can be searched: the first row.

        Nothing to its left can contradict it. Without `hold` it is the surest near row, as in RPS.
        """
        rank = -np.arange(len(look)) if self.hold else np.where(self._near(look), look.p, -1)
        return top_rows(rank.astype(np.float32), 1)

    def _pivots(self, look: Look, canvas: Canvas) -> list[Pivot]:
        """Return the feasible near rows with the highest truncated entropy, while they leave a choice."""
        window = self._window(canvas)
        most = min(canvas.branches_for(window), self.branches or MOST_BRANCHES)
        if len(canvas.masked(window)) < 2:
            return []  # no entropy is left that a token could lower
        top_p = look.top_p[:, : self.k_max]
        feasible = (
            self._near(look)
            & (look.pos < window.stop)
            & (top_p.sum(axis=1, dtype=np.float64) >= self.tau_pivot)
        )
        spread = np.where(feasible, truncated_entropy(top_p.astype(np.float64)), -np.inf)
        pivots = []
        for row in np.argsort(-spread, kind="stable")[: min(self.pivots, np.count_nonzero(feasible))]:
            reachable = look.top_token[row, : self.k_max][top_p[row] >= self.r * top_p[row, 0]]
            if len(reachable[:most]) < 2:
                break
            pivots.append(Pivot(int(look.pos[row]), reachable[:most]))
        return pivots

    def _candidates(self, pivots: list[Pivot]) -> list[Trial]:
        """Return every token of the first pivot alone, then the pairs with the second."""
        alone = [Trial(((pivots[0].pos, int(token)),), i) for i, token in enumerate(pivots[0].token)]
        pairs = [
            Trial((*one.edits, (second.pos, int(token))), one.first)
            for second in pivots[1:]
            for one in alone[: self.joint]
            for token in second.token[: self.joint]
        ]
        return alone + pairs

    def _scores(self, answer: Answer, pivots: list[Pivot], candidates: list[Trial]) -> Doubles:
        """Score staying masked, then each candidate, by the entropy of all but the pivots (RPS's Eq. 4).

        A pair is as plausible as its first token, times its second given the first; what leaves the second
        pivot open counts its own P_max there.
        """
        at = [pivot.pos for pivot in pivots]
        looks = (answer.base, *answer.branches)
        mean_entropy = [look.mean_entropy(at) for look in looks]
        given = [1.0, *(answer.probes[one.first] if len(one.edits) == 2 else 1.0 for one in candidates)]
        own = [1.0, *answer.probes]
        left_open = [np.prod([look.p_max(pos) for pos in at if pos in look.pos]) for look in looks]
        plausibility = np.prod(np.array([given, own, left_open], dtype=np.float64), axis=0)
        return score(np.array(mean_entropy), plausibility, self.lam)


def _lookahead(window: Window, candidates: list[Trial], adopted: int) -> Ask:
    """Ask for a branch per candidate; probe first tokens in the anchor, second ones given the first."""
    probes = [
        (0, *one.edits[0]) if len(one.edits) == 1 else (one.first + 1, *one.edits[1]) for one in candidates
    ]
    return Ask(window, tuple(one.edits for one in candidates), tuple(probes), adopted=adopted)


def _facts(
    look: Look, pivots: list[Pivot], candidates: list[Trial], answer: Answer, scores: Doubles
) -> dict[str, Any]:
    """Return what the trace says of one search; index 0 of score and entropy is staying masked."""
    at, best = [pivot.pos for pivot in pivots], int(np.argmax(scores))
    row = int(np.flatnonzero(look.pos == at[0])[0])
    facts = {
        "pivot": at[0],
        "entropy_before": float(look.entropy[row]),
        "token": [one.edits[0][1] for one in candidates],
        "p": [float(look.top_p[row, one.first]) for one in candidates],
        "p_anchor": [float(answer.probes[one.first]) for one in candidates],
        "p_anchor_max": answer.base.p_max(at[0]),
        "mean_entropy": [one.mean_entropy(at) for one in (answer.base, *answer.branches)],
        "score": [s if np.isfinite(s) else None for s in scores.tolist()],
        "chosen": best - 1 if best else None,
    }
    second = [one.edits[1][1] if len(one.edits) == 2 else None for one in candidates]
    return facts if len(at) == 1 else facts | {"pivot_2": at[1], "token_2": second}
