"""Confidence factor (Fast-dLLM "dynamic"): the more tokens go at once, the surer each must be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ripple.decoders.base import Pick, SimpleRule, longest_prefix, ranking
from ripple.fields import param
from ripple.look import Look


@dataclass(frozen=True)
class Factor(SimpleRule):
    """Commit the n surest positions, n the largest with (n + 1)(1 - c_(n)) < f."""

    name = "factor"
    paper = "Fast-dLLM, arXiv 2505.22618"

    f: float = param(1.0, "f of the commit condition", within="[0, inf)")
    match_fast_dllm_tail: bool = param(
        False, "a scan that reaches the last rank commits it, passed or not, as Fast-dLLM's code does"
    )

    def pick(self, look: Look) -> Pick:
        """Scan ranks 1, 2, ... and stop before the first that fails."""
        c = look.p[ranking(look.p)].astype(np.float64)
        n = np.arange(1, len(c) + 1)
        accepted = (n + 1) * (1 - c) < self.f
        if self.match_fast_dllm_tail and accepted[1:-1].all():
            accepted[:] = True
        return longest_prefix(look.p, accepted)
