"""What the searches of RPS did, read from traces: how many, what was committed, and Proposition 1.

Proposition 1: for a branch with n masked positions beside the pivot and mean entropy H̄, at least
n - ⌊n H̄ / h(τ)⌋ of them have a confidence of τ or more. A trace tells n and H̄ of the branch that RPS adopted,
and, in the standard commit that follows, how many positions really had it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ripple.engine.result import Result
from ripple.trace import Event

BoundPair = tuple[int, int, int]  # n, certified, observed


def search_facts(traced: Sequence[Result]) -> dict[str, float]:
    """Return searches per request, mean candidates, and the shares committed and not top-1."""
    searches = [event.data for result in traced for event in result.trace or [] if event.kind == "search"]
    chosen = [facts["chosen"] for facts in searches if facts["chosen"] is not None]
    n = max(1, len(searches))
    return {
        "searches": len(searches) / len(traced),
        "mean_candidates": sum(len(facts["token"]) for facts in searches) / n,
        "committed": len(chosen) / n,
        "not_top_1": sum(rank > 0 for rank in chosen) / max(1, len(chosen)),
    }


def binary_entropy(tau: float) -> float:
    """Return h(τ) in nats."""
    return -tau * math.log(tau) - (1 - tau) * math.log(1 - tau)


def certified(n: int, mean_entropy: float, tau: float) -> int:
    """Return the least number of the n positions whose confidence must reach τ (Proposition 1)."""
    return max(0, n - math.floor(n * mean_entropy / binary_entropy(tau)))


def bound_pairs(events: Sequence[Event]) -> Iterator[BoundPair]:
    """Yield for each search of one RPS trace: n, the certified and the observed number of commits."""
    fields = events[0].data["fields"]
    tau, n, search = fields["tau"], 0, None
    for event in events:
        if event.kind == "forward":
            n, search = len(event.data["pos"]) - 1, None  # the base still holds the pivot
        elif event.kind == "search":
            search = event.data
        elif event.kind == "commit" and search is not None and event.data["cause"] != "pivot":
            branch = 0 if search["chosen"] is None else search["chosen"] + 1
            is_standard = event.data["cause"] == "standard"  # a fallback: nothing reached τ
            observed = sum(pos != search["pivot"] for pos in event.data["pos"]) if is_standard else 0
            yield n, certified(n, search["mean_entropy"][branch], tau), observed
            search = None


def count_bound_pairs(traced: Iterable[Result]) -> list[list[int]]:
    """Return [n, certified, observed, how often] over all searches of these responses."""
    counts = Counter(pair for result in traced for pair in bound_pairs(result.trace or []))
    return [[*pair, count] for pair, count in sorted(counts.items())]
