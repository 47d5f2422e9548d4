"""Fréchet profile (Fast-dLLM++): a joint lower bound on the whole prefix instead of its last member."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ripple.decoders.base import Pick, SimpleRule, longest_prefix, ranking
from ripple.fields import param
from ripple.look import Look


@dataclass(frozen=True)
class Frechet(SimpleRule):
    """Commit the n surest positions, n the largest with G_n > δ.

    G_n = (sum_{j<=n} c_(j) - (n - 1)) - (1 - c_(n)); it falls with n.
    """

    name = "frechet"
    paper = "Fast-dLLM++, arXiv 2606.02955"

    delta: float = param(0.25, "δ: commit while the profile G_n stays above it")

    def pick(self, look: Look) -> Pick:
        """Choose the longest prefix of the ranked rows whose profile stays above δ."""
        c = look.p[ranking(look.p)].astype(np.float64)
        n = np.arange(1, len(c) + 1)
        profile = (np.cumsum(c) - (n - 1)) - (1 - c)  # G_n
        return longest_prefix(look.p, profile > self.delta)
