"""Paired tests against values worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ripple.analysis.paired import bootstrap_difference, compare_lines, mcnemar
from ripple.errors import RippleError


@pytest.mark.parametrize(
    "only_a, only_b, p",
    [
        (0, 0, 1.0),  # nothing tells them apart
        (1, 0, 1.0),  # 2 * 1/2
        (3, 3, 1.0),  # 2 * (1 + 6 + 15 + 20) / 64 is over 1
        (1, 5, 14 / 64),  # 2 * (1 + 6) / 2^6
        (5, 1, 14 / 64),
        (0, 10, 2 / 1024),
        (2, 8, 112 / 1024),  # 2 * (1 + 10 + 45) / 2^10
        (0, 2000, 0.0),  # under the smallest float
    ],
)
def test_mcnemar_by_hand(only_a: int, only_b: int, p: float) -> None:
    assert mcnemar(only_a, only_b) == p


def test_mcnemar_nears_the_normal_for_many_items() -> None:
    only_a, only_b = 460, 540
    z = (abs(only_a - only_b) - 1) / math.sqrt(only_a + only_b)
    assert mcnemar(only_a, only_b) == pytest.approx(math.erfc(z / math.sqrt(2)), abs=1e-4)
    with pytest.raises(RippleError, match="0 or more"):
        mcnemar(-1, 3)


def test_bootstrap_by_hand() -> None:
    yes, no = [True] * 5, [False] * 5
    assert bootstrap_difference(yes, yes) == (0.0, 0.0)
    assert bootstrap_difference(no, yes) == (1.0, 1.0)
    assert bootstrap_difference(yes, no) == (-1.0, -1.0)
    # Steps 1 and 0: resamples give 0, 1/2 and 1 with shares 1/4, 1/2, 1/4.
    assert bootstrap_difference([False, True], [True, True]) == (0.0, 1.0)


def test_bootstrap_nears_the_normal_for_many_items() -> None:
    # 40 items to b, 20 to a, of 400: difference 0.05, standard error sqrt(60 - 20^2 / 400) / 400.
    a = [False] * 40 + [True] * 20 + [True] * 340
    b = [True] * 40 + [False] * 20 + [True] * 340
    half = 1.96 * math.sqrt(60 - 20**2 / 400) / 400
    assert bootstrap_difference(a, b) == pytest.approx((0.05 - half, 0.05 + half), abs=0.005)
    assert bootstrap_difference(a, b, seed=3) == bootstrap_difference(a, b, seed=3)


def test_bootstrap_needs_pairs() -> None:
    for a, b in (([], []), ([True], [True, False])):
        with pytest.raises(RippleError, match="Pairs are needed"):
            bootstrap_difference(a, b)


def line(item: str, right: bool, nfe: int, digest: str = "same") -> dict[str, Any]:
    return {"item": item, "right": right, "nfe": nfe, "digest": digest}


def test_comparison_is_over_the_items_in_common() -> None:
    a = [line("1", True, 10), line("2", False, 20), line("3", True, 30), line("only a", True, 999)]
    b = [line("3", False, 3), line("2", True, 2), line("1", True, 1), line("x", False, 9), line("y", True, 9)]
    found = compare_lines(a, b)
    assert (found.n, found.only_a, found.only_b, found.p) == (3, 1, 1, 1.0)
    assert (found.accuracy_a, found.accuracy_b, found.difference) == (2 / 3, 2 / 3, 0.0)
    assert (found.nfe_a, found.nfe_b, found.left_out_a, found.left_out_b) == (20, 2, 1, 2)


def test_comparison_refuses_other_items() -> None:
    with pytest.raises(RippleError, match="no item in common"):
        compare_lines([line("1", True, 1)], [line("2", True, 1)])
    with pytest.raises(RippleError, match="different problems by item 1"):
        compare_lines([line("1", True, 1)], [line("1", True, 1, "other")])
