"""Intervals and paired tests against values worked out by hand."""

from __future__ import annotations

import math
import random

import pytest

from ripple.analysis.statistics import (
    Paired,
    mcnemar,
    mean_difference,
    pack_bits,
    paired,
    pooled,
    unpack_bits,
    wilson,
)
from ripple.errors import RippleError


@pytest.mark.parametrize(
    "right, n, low, high",
    [
        (0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (90, 100, 0.8256, 0.9448), (10, 10, 0.7225, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)  # fmt: skip
def test_wilson_intervals(right: int, n: int, low: float, high: float) -> None:
    assert wilson(right, n) == pytest.approx((low, high), abs=1e-4)


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
    assert mcnemar(only_a, only_b) == p == Paired(3000, only_a, only_b).p


def test_mcnemar_nears_the_normal_for_many_items() -> None:
    only_a, only_b = 460, 540
    z = (abs(only_a - only_b) - 1) / math.sqrt(only_a + only_b)
    assert mcnemar(only_a, only_b) == pytest.approx(math.erfc(z / math.sqrt(2)), abs=1e-4)
    with pytest.raises(RippleError, match="0 or more"):
        mcnemar(-1, 3)


def test_a_paired_difference_by_hand() -> None:
    # 40 items to b, 20 to a, of 400: difference 0.05, standard error sqrt(60 - 20^2 / 400) / 400.
    pair = Paired(400, only_a=20, only_b=40)
    half = 1.959964 * math.sqrt(60 - 20**2 / 400) / 400
    assert pair.difference == 0.05 and pair.half_width == pytest.approx(half)
    assert pair.interval == pytest.approx((0.05 - half, 0.05 + half))
    assert Paired(5, 0, 5).interval == (1.0, 1.0) and Paired(5, 0, 0).interval == (0.0, 0.0)
    assert Paired(0, 0, 0).interval == (0.0, 0.0)


def test_the_closed_form_covers_the_truth_about_as_often_as_it_says() -> None:
    rng, n_covered, share_a, share_b = random.Random(1), 0, 0.08, 0.15
    for _ in range(400):
        only_a = only_b = 0
        for _ in range(250):
            x = rng.random()
            only_a += x < share_a
            only_b += share_a <= x < share_a + share_b
        low, high = Paired(250, only_a, only_b).interval
        n_covered += low <= share_b - share_a <= high
    assert 0.92 <= n_covered / 400 <= 0.98


def test_a_small_loss_is_shown_to_be_small_by_many_items_alone() -> None:
    assert Paired(1000, 5, 5).loses_less_than(0.01)
    assert not Paired(200, 1, 1).loses_less_than(0.01)
    assert not Paired(1000, 30, 5).loses_less_than(0.01)


def test_pairs_are_counted_and_pooled() -> None:
    pair = paired([True, True, False, False, True], [True, False, True, True, True])
    assert pair == Paired(5, only_a=1, only_b=2)
    assert pooled([pair, Paired(10, 3, 0)]) == Paired(15, 4, 2) and pooled([]) == Paired(0, 0, 0)
    with pytest.raises(RippleError, match="Pairs are needed, got 1 and 2 items"):
        paired([True], [True, False])


def test_a_mean_difference_by_hand() -> None:
    # steps 1, 2, 6: mean 3, variance (4 + 1 + 9) / 2 = 7
    assert mean_difference([1, 1, 1], [2, 3, 7]) == (3.0, pytest.approx(1.959964 * math.sqrt(7 / 3)))
    assert mean_difference([4], [5]) == (1.0, 0.0)
    for a, b in (([], []), ([1], [1, 2])):
        with pytest.raises(RippleError, match="Pairs are needed"):
            mean_difference(a, b)


def test_verdicts_survive_being_packed() -> None:
    assert pack_bits([False, False, False, False, True, False, True]) == "05"
    rng = random.Random(0)
    for n in range(1, 40):
        verdicts = [rng.random() < 0.5 for _ in range(n)]
        assert unpack_bits(pack_bits(verdicts), n) == verdicts
    assert unpack_bits("0", 0) == []
