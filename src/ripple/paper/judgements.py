"""Where our models agree with the paper and where they do not: every sentence is computed from the lines."""

from __future__ import annotations

from ripple.paper import claims, claims_method
from ripple.paper.experiments import EXPERIMENTS
from ripple.paper.judge import Judgement
from ripple.paper.line_index import LineIndex


def judgements(index: LineIndex) -> list[Judgement]:
    """Return every statement of the paper that the lines allow to judge, in the order of the experiments."""
    checks = (*claims.CHECKS, *claims_method.CHECKS)
    told = [judgement for check in checks if (judgement := check(index))]
    order = list(EXPERIMENTS)
    return sorted(told, key=lambda judgement: order.index(judgement.experiment))
