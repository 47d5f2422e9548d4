"""Shares, and pairs of shares over the same items: intervals, the exact test, and how verdicts are stored.

Every interval of a paired difference in this project is `Paired.interval`, the closed form: with d the
difference and m the share of items that one side alone solves, d ± 1.96 sqrt((m - d²) / n).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ripple.errors import RippleError

Z_95 = 1.959964  # two-sided 95 % of the normal distribution


def wilson(n_right: int, n: int) -> tuple[float, float]:
    """Return the Wilson 95 % interval of a share, which stays inside [0, 1] and is honest near its ends."""
    if n == 0:
        return 0.0, 1.0
    share, z = n_right / n, Z_95
    scale = 1 + z * z / n
    middle = (share + z * z / (2 * n)) / scale
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


# -- two sides on the same items --------------------------------------------------------------------------


class Paired(NamedTuple):
    """Two sides, a and b, on the same n items; differences are b minus a."""

    n: int
    only_a: int  # items that a alone solves
    only_b: int

    @property
    def difference(self) -> float:
        """The difference of the two shares."""
        return (self.only_b - self.only_a) / max(self.n, 1)

    @property
    def half_width(self) -> float:
        """Half the width of the difference's 95 % interval."""
        n = max(self.n, 1)
        moved = (self.only_a + self.only_b) / n
        return Z_95 * math.sqrt(max(0.0, moved - self.difference**2) / n)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the difference."""
        return self.difference - self.half_width, self.difference + self.half_width

    @property
    def p(self) -> float:
        """The exact two-sided McNemar p-value."""
        return mcnemar(self.only_a, self.only_b)

    def loses_less_than(self, margin: float) -> bool:
        """Say whether b loses less than `margin` against a, with 95 % confidence."""
        return self.interval[0] > -margin


def paired(a: Sequence[bool], b: Sequence[bool]) -> Paired:
    """Compare two lists of verdicts on the same items."""
    if len(a) != len(b):
        raise RippleError(f"Pairs are needed, got {len(a)} and {len(b)} items.")
    pairs = list(zip(a, b, strict=True))
    return Paired(len(pairs), sum(x and not y for x, y in pairs), sum(y and not x for x, y in pairs))


def pooled(tables: Iterable[Paired]) -> Paired:
    """Pool comparisons over different items."""
    columns = list(zip(*tables, strict=True)) or [(), (), ()]
    return Paired(*(sum(column) for column in columns))


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


def mean_difference(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Return the mean of b - a over pairs and half the width of its 95 % interval."""
    if len(a) != len(b) or not a:
        raise RippleError(f"Pairs are needed, got {len(a)} and {len(b)} items.")
    steps = [y - x for x, y in zip(a, b, strict=True)]
    n = len(steps)
    mean = sum(steps) / n
    variance = sum((step - mean) ** 2 for step in steps) / max(n - 1, 1)
    return mean, Z_95 * math.sqrt(variance / n)


# -- verdicts as text -------------------------------------------------------------------------------------


def pack_bits(verdicts: Sequence[bool]) -> str:
    """Write verdicts as hexadecimal digits, the first item in the highest bit of n."""
    n = len(verdicts)
    bits = "".join("01"[verdict] for verdict in verdicts)
    return f"{int(bits or '0', 2):0{-(-n // 4)}x}"


def unpack_bits(packed: str, n: int) -> list[bool]:
    """Read n verdicts, the first item first."""
    return [bit == "1" for bit in f"{int(packed, 16):0{n}b}"] if n else []
