"""Confidence threshold (Fast-dLLM): commit everything the model is sure of."""

from __future__ import annotations

from dataclasses import dataclass

from ripple.decoders.base import Pick, SimpleRule, qualified_or_best
from ripple.fields import param
from ripple.look import Look


@dataclass(frozen=True)
class Confidence(SimpleRule):
    """Commit every position with P_max >= τ, or the single best one (paper Eq. 2, third rule)."""

    name = "confidence"
    paper = "Fast-dLLM, arXiv 2505.22618"

    tau: float = param(0.9, "τ: commit at P_max >= τ", within="(0, 1]")

    def pick(self, look: Look) -> Pick:
        """Choose S = {i in M : P_max(i) >= τ}."""
        return qualified_or_best(look.p >= self.tau, look.p)
