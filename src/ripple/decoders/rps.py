"""Ripple-Pivot Search: commit one well-chosen uncertain token early, so that the rest becomes certain.

The loop below is the paper's Algorithm 1 line by line. `anchor="shared"` reads the anchor branch from the
base of the packed forward, where it is an exact plain forward; the paper packs a copy of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ripple.canvas import Canvas, Ints, Window
from ripple.decoders.base import Conversation, Decoder, Rule, Setup, commit, place
from ripple.decoders.confidence import Confidence
from ripple.errors import RippleError
from ripple.fields import param
from ripple.look import Answer, Ask, Edits, Look, Wants

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RPS(Decoder):
    """Search a mid-entropy pivot's tokens in one lookahead forward; commit the best or leave it masked."""

    name = "rps"
    paper = "Ripple-Pivot Search, arXiv 2608.11742"

    tau: float = param(0.9, "τ of the standard commit", within="(0, 1]")
    tau_pivot: float = param(
        0.9, "τ_pivot: least mass on the truncated support; above 1 no pivot is feasible", within="[0, inf)"
    )
    k_max: int = param(10, "k_max: size of the truncated support", within="[1, 255]")
    r: float = param(0.1, "r: reachability ratio to the pivot's top-1 probability", within="(0, 1]")
    lam: float = param(0.1, "λ: weight of plausibility", within="[0, inf)")
    pivot: str = param(
        "mid_entropy", "pivot rule; the others are ablations",
        choices=("mid_entropy", "max_confidence", "max_entropy", "random"),
    )  # fmt: skip
    candidates: str = param(
        "search",
        "greedy: only the top-1 token against staying masked (ablation)",
        choices=("search", "greedy"),
    )
    anchor: str = param(
        "shared",
        "packed: pay for a copy of the anchor, as the paper's text does",
        choices=("shared", "packed"),
    )
    standard: Rule | None = param(None, "the standard commit rule; none is confidence at τ")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.standard is not None and not isinstance(self.standard, Rule):
            given: object = self.standard
            shown = given.describe() if isinstance(given, Decoder) else given
            raise RippleError(
                f"rps: standard must be a single-forward decoder such as confidence, got {shown!r}."
            )

    def fitted(self, setup: Setup) -> Self:
        """Fit the standard rule."""
        return self if self.standard is None else replace(self, standard=self.standard.fitted(setup))

    @property
    def rule(self) -> Rule:
        """The standard commit rule in force."""
        return self.standard or Confidence(self.tau)

    @property
    def wants(self) -> Wants:
        """The truncated support, and whatever the standard rule needs."""
        inner = self.rule.wants
        return Wants(top=max(self.k_max, inner.top), kl=inner.kl)

    def decode(self, canvas: Canvas) -> Conversation:
        """Fill the canvas block by block (Algorithm 1)."""
        pick_standard = self.rule.picker(canvas)
        ahead = self.rule.reads_ahead
        fewest = 1 if self.candidates == "greedy" else 2  # candidates that make a search
        for window in canvas.windows():
            if not len(canvas.masked(window)):
                continue
            answer, adopted = (yield Ask(window, ahead=ahead)), 0  # block-opening forward
            look = answer.base  # {p_i} over M
            while len(look):
                pick = pick_standard(look, answer.ahead)  # S
                commit(canvas, look, pick)
                look = look.keep(~pick[0])  # M <- M \ S
                if not len(look):
                    break
                pivot = self._choose_pivot(look, canvas) if len(look) > 1 else None
                tokens = self._candidate_tokens(look, pivot)[: canvas.branches_for(window)]
                if pivot is None or len(tokens) < fewest:
                    answer = yield Ask(window, ahead=ahead, adopted=adopted)
                    look, adopted = answer.base, 0
                    continue
                i_star = int(look.pos[pivot])
                answer = yield self._lookahead(window, i_star, tokens, ahead, adopted)
                n_anchor = int(self.anchor == "packed")  # branches before the candidates
                anchor = answer.branches[0] if n_anchor else answer.base
                scores = self._scores(answer, anchor, i_star)
                best = int(np.argmax(scores))  # [MASK] comes first: a token must score strictly higher
                canvas.note("search", partial(_facts, look, pivot, tokens, answer, anchor, scores))
                if best:
                    adopted = n_anchor + best
                    token, p = int(tokens[best - 1]), float(answer.probes[best - 1])
                    place(canvas, i_star, token, p, "pivot")
                    look = answer.branches[adopted - 1]  # reuse the winner's look
                else:
                    adopted, look = n_anchor, anchor  # reuse the anchor's look

    def _choose_pivot(self, look: Look, canvas: Canvas) -> int | None:
        """Return the row of the pivot i* among the masked rows (Eq. 3), or None when none is feasible."""
        if self.pivot == "random":
            return int(canvas.rng.integers(len(look)))
        if self.pivot == "max_confidence":
            return int(np.argmax(look.p))
        top_p = look.top_p[:, : self.k_max].astype(np.float64)  # p_i(v) for v in T_i
        spread = truncated_entropy(top_p)
        if self.pivot == "mid_entropy":
            feasible = top_p.sum(axis=1) >= self.tau_pivot  # μ_i >= τ_pivot
            if not feasible.any():
                return None
            spread[~feasible] = -np.inf
        return int(np.argmax(spread))

    def _candidate_tokens(self, look: Look, pivot: int | None) -> Ints:
        """Return C without [MASK], most probable first."""
        if pivot is None:
            return look.top_token[0, :0]
        tokens, p = look.top_token[pivot, : self.k_max], look.top_p[pivot, : self.k_max]
        if self.candidates == "greedy":
            return tokens[:1]
        reachable: Ints = tokens[p >= self.r * p[0]]
        return reachable

    def _lookahead(self, window: Window, i_star: int, tokens: Ints, ahead: bool, adopted: int) -> Ask:
        """Build x_ahead: one branch per candidate, and probes for p_anchor(c)."""
        n_anchor = int(self.anchor == "packed")
        copies: tuple[Edits, ...] = ((),) * n_anchor
        return Ask(
            window,
            branches=(*copies, *(((i_star, int(c)),) for c in tokens)),
            probes=tuple((n_anchor, i_star, int(c)) for c in tokens),
            ahead=ahead,
            adopted=adopted,
        )

    def _scores(self, answer: Answer, anchor: Look, i_star: int) -> Doubles:
        """Score [MASK] first, then each candidate (Eq. 4)."""
        at_pivot = anchor.pos == i_star
        branches = answer.branches[int(self.anchor == "packed") :]
        entropies = np.array([anchor.entropy[~at_pivot], *(branch.entropy for branch in branches)])
        mean_entropy = entropies.mean(axis=1, dtype=np.float64)  # H̄_c over M without i*
        plausibility = np.concatenate([anchor.top_p[at_pivot, 0], answer.probes]).astype(np.float64)  # a_c
        return score(mean_entropy, plausibility, self.lam)


def truncated_entropy(top_p: Doubles) -> Doubles:
    """Return -Σ p log p over each row's truncated support, not renormalised (Eq. 3)."""
    entropy: Doubles = -(top_p * np.log(np.maximum(top_p, 1e-300))).sum(axis=1)
    return entropy


def score(mean_entropy: Doubles, plausibility: Doubles, lam: float) -> Doubles:
    """Return -H̄_c + λ log a_c for each candidate c (Eq. 4); λ = 0 leaves plausibility out."""
    if lam == 0:
        return -mean_entropy
    with np.errstate(divide="ignore"):
        return lam * np.log(plausibility) - mean_entropy


def _facts(
    look: Look, pivot: int, tokens: Ints, answer: Answer, anchor: Look, scores: Doubles
) -> dict[str, Any]:
    """Return what the trace says of one search; index 0 of score and entropy is [MASK]."""
    i_star = int(look.pos[pivot])
    branches = answer.branches[len(answer.branches) - len(tokens) :]
    rest = anchor.pos != i_star
    return {
        "pivot": i_star,
        "entropy_before": float(look.entropy[pivot]),
        "token": tokens.tolist(),
        "p": look.top_p[pivot, : len(tokens)].tolist(),
        "p_anchor": answer.probes.tolist(),
        "p_anchor_max": float(anchor.top_p[~rest, 0][0]),
        "mean_entropy": [
            float(anchor.entropy[rest].mean()),
            *(float(b.entropy.mean()) for b in branches),
        ],
        "score": [s if np.isfinite(s) else None for s in scores.tolist()],  # JSON knows no infinity
        "chosen": best - 1 if (best := int(np.argmax(scores))) else None,
    }
