"""Where our models agree with the paper and where they do not: every sentence is computed from the lines."""

from __future__ import annotations

from ripple.paper import claims, claims_method
from ripple.paper.book import Book
from ripple.paper.experiments import EXPERIMENTS
from ripple.paper.judge import Finding


def findings(book: Book) -> list[Finding]:
    """Return every statement of the paper that the lines allow to judge, in the order of the experiments."""
    found = [finding for check in (*claims.CHECKS, *claims_method.CHECKS) if (finding := check(book))]
    order = list(EXPERIMENTS)
    return sorted(found, key=lambda finding: order.index(finding.experiment))
