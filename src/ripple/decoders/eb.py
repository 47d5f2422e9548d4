"""EB-Sampler: spend an entropy budget on the positions with the smallest expected error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ripple.canvas import Floats
from ripple.decoders.base import Pick, SimpleRule, longest_prefix, ranking
from ripple.fields import param
from ripple.look import Look, Wants


@dataclass(frozen=True)
class EB(SimpleRule):
    """Commit the longest prefix U, by error proxy, with sum_U H - max_U H <= γ (nats)."""

    name = "eb"
    paper = "EB-Sampler, arXiv 2505.24857"

    gamma: float = param(0.1, "γ: entropy budget of a step, nats", within="[0, inf)")
    proxy: str = param("confidence", "error proxy that ranks M", choices=("confidence", "entropy", "margin"))

    @property
    def wants(self) -> Wants:
        """The margin needs the two most probable tokens."""
        return Wants(top=2 if self.proxy == "margin" else 1)

    def pick(self, look: Look) -> Pick:
        """Walk down the ranking while the budget holds; one position always fits."""
        score = self._score(look)
        entropy = look.entropy[ranking(score)].astype(np.float64)
        spent = np.cumsum(entropy) - np.maximum.accumulate(entropy)
        return longest_prefix(score, spent <= self.gamma)

    def _score(self, look: Look) -> Floats:
        if self.proxy == "confidence":
            return look.p
        if self.proxy == "entropy":
            return -look.entropy
        return look.top_p[:, 0] - look.top_p[:, 1]
