"""Two decoders on the same items: are they different, and by how much?"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from ripple.analysis.lines import Line
from ripple.errors import RippleError

N_RESAMPLES = 2000
_TAIL = 0.025  # left out on each side of a 95 % interval


@dataclass(frozen=True)
class Comparison:
    """Two runs, a and b, over the items that both have; the difference is b minus a."""

    n: int
    accuracy_a: float
    accuracy_b: float
    difference: float
    interval: tuple[float, float]  # of the difference: paired bootstrap, 95 %
    only_a: int  # items that a alone solves
    only_b: int
    p: float  # exact McNemar, two-sided
    nfe_a: float
    nfe_b: float
    left_out_a: int  # items that b does not have
    left_out_b: int


def mcnemar(only_a: int, only_b: int) -> float:
    """Return the exact two-sided p-value that items solved by one alone fall to either side alike."""
    if min(only_a, only_b) < 0:
        raise RippleError(f"Counts must be 0 or more, got {only_a} and {only_b}.")
    n = only_a + only_b
    tail = term = 1  # C(n, 0), then C(n, 1) and so on: whole numbers, so that nothing is rounded
    for i in range(1, min(only_a, only_b) + 1):
        term = term * (n - i + 1) // i
        tail += term
    return min(1.0, 2 * tail / (1 << n))


def bootstrap_difference(
    right_a: Sequence[bool], right_b: Sequence[bool], n_resamples: int = N_RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """Return the 95 % interval of accuracy b minus accuracy a, drawing items in pairs, with replacement."""
    if len(right_a) != len(right_b) or not right_a:
        raise RippleError(f"Pairs are needed, got {len(right_a)} and {len(right_b)} items.")
    steps = [int(b) - int(a) for a, b in zip(right_a, right_b, strict=True)]
    n, rng = len(steps), random.Random(seed)
    sums = sorted(sum(rng.choices(steps, k=n)) for _ in range(n_resamples))
    low, high = math.floor(_TAIL * n_resamples), math.ceil((1 - _TAIL) * n_resamples) - 1
    return sums[low] / n, sums[high] / n


def compare_lines(a: Sequence[Line], b: Sequence[Line], seed: int = 0) -> Comparison:
    """Compare two runs by their item lines, over the items that both have."""
    of_a, of_b = ({row["item"]: row for row in rows} for rows in (a, b))
    shared = [name for name in of_a if name in of_b]
    if not shared:
        raise RippleError("The two runs have no item in common.")
    for name in shared:
        if of_a[name]["digest"] != of_b[name]["digest"]:
            raise RippleError(f"The two runs mean different problems by item {name}.")
    right_a = [of_a[name]["right"] for name in shared]
    right_b = [of_b[name]["right"] for name in shared]
    n = len(shared)
    only_a = sum(x and not y for x, y in zip(right_a, right_b, strict=True))
    only_b = sum(y and not x for x, y in zip(right_a, right_b, strict=True))
    return Comparison(
        n=n,
        accuracy_a=sum(right_a) / n,
        accuracy_b=sum(right_b) / n,
        difference=(only_b - only_a) / n,
        interval=bootstrap_difference(right_a, right_b, seed=seed),
        only_a=only_a,
        only_b=only_b,
        p=mcnemar(only_a, only_b),
        nfe_a=sum(of_a[name]["nfe"] for name in shared) / n,
        nfe_b=sum(of_b[name]["nfe"] for name in shared) / n,
        left_out_a=len(of_a) - n,
        left_out_b=len(of_b) - n,
    )
