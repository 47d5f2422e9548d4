"""Default: a fixed number of tokens per step, the surest positions first."""

from __future__ import annotations

from dataclasses import dataclass

from ripple.decoders.base import Pick, SimpleRule, check_choice, check_count, top_rows
from ripple.look import Look


@dataclass(frozen=True)
class Default(SimpleRule):
    """Commit the k surest positions per step (paper Eq. 2, first two rules)."""

    name = "default"
    paper = "LLaDA, arXiv 2502.09992 (confidence); Dream, arXiv 2508.15487 (entropy)"

    k: int = 1  # tokens per step
    order: str = "confidence"  # or "entropy": lowest entropy first

    def __post_init__(self) -> None:
        check_count(self, 1, "k")
        check_choice(self, "order", "confidence", "entropy")

    def pick(self, look: Look) -> Pick:
        """Choose the k best rows."""
        score = look.p if self.order == "confidence" else -look.entropy
        return top_rows(score, self.k), "standard"
