"""Intervals for shares."""

from __future__ import annotations

import math

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
