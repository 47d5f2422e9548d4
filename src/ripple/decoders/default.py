"""Default: a fixed number of tokens per step, the surest positions first, or from left to right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ripple.decoders.base import Pick, SimpleRule, top_rows
from ripple.fields import param
from ripple.look import Look


@dataclass(frozen=True)
class Default(SimpleRule):
    """Commit the k surest positions per step (paper Eq. 2, first two rules).

    Probabilities are fp32 and ties go to the left. On very sharp models several positions reach P_max = 1 in
    fp32 and tie, where code that ranks in fp64, such as Fast-dLLM's, still tells them apart.
    """

    name = "default"
    paper = "LLaDA, arXiv 2502.09992 (confidence); Dream, arXiv 2508.15487 (entropy)"

    k: int = param(1, "tokens per step", within="[1, inf)")
    order: str = param(
        "confidence", "what is committed first; left: the leftmost", choices=("confidence", "entropy", "left")
    )

    def pick(self, look: Look) -> Pick:
        """Choose the k best rows."""
        if self.order == "left":
            return np.arange(len(look)) < self.k, "standard"
        score = look.p if self.order == "confidence" else -look.entropy
        return top_rows(score, self.k), "standard"
