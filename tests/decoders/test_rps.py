"""RPS's own rules on scripted looks, and the paper's two propositions on the code that scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ripple.canvas import Canvas, Window
from ripple.decoders import RPS, Confidence
from ripple.decoders.rps import score, truncated_entropy
from ripple.look import Answer, Ask, Look

MASK = 99


def look_at(rows: dict[int, list[float]], entropy: list[float] | None = None) -> Look:
    """A look with the given top probabilities per position; tokens are 0, 1, 2, ... by rank."""
    k = max(len(p) for p in rows.values())
    top_p = np.array([p + [0.0] * (k - len(p)) for p in rows.values()], dtype=np.float32)
    top_token = np.tile(np.arange(k), (len(rows), 1))
    h = truncated_entropy(top_p.astype(np.float64)) if entropy is None else np.array(entropy)
    return Look(np.array(list(rows)), top_token[:, 0], top_p[:, 0], h.astype(np.float32), top_token, top_p)


def canvas(length: int = 4) -> Canvas:
    return Canvas(np.array([1]), length, length, MASK)


def search(decoder: RPS, opening: Look, answer: Answer | None = None) -> tuple[Canvas, Ask, Ask | None]:
    """Run the opening and one search; return the canvas, the second ask and the third."""
    board = canvas(len(opening))
    talk = decoder.decode(board)
    next(talk)
    second = talk.send(Answer(opening))
    third = None
    if answer is not None:
        third = talk.send(answer)
    return board, second, third


SURE, HALF, FLAT = [0.95, 0.03], [0.5, 0.3, 0.15, 0.04], [0.2, 0.2, 0.2]


def test_the_pivot_is_the_most_entropic_position_that_keeps_its_mass() -> None:
    opening = look_at(
        {1: SURE, 2: [0.8, 0.15], 3: HALF, 4: FLAT}
    )  # 4 is more entropic but holds 0.6 of its mass
    _, ask, _ = search(RPS(tau=0.9, tau_pivot=0.9, r=0.1), opening)
    assert [edits[0][0] for edits in ask.branches] == [3, 3, 3]
    assert [edits[0][1] for edits in ask.branches] == [0, 1, 2]  # 0.04 < 0.1 * 0.5 is out of reach


def test_the_mass_test_is_inclusive_and_uses_k_max_tokens() -> None:
    opening = look_at({1: [0.5, 0.25, 0.25], 2: [0.5, 0.25, 0.125]})
    decoder = RPS(tau_pivot=0.75, k_max=2)
    _, ask, _ = search(decoder, look_at({1: [0.75, 0.1], 2: [0.5, 0.25, 0.25], 3: [0.5, 0.2, 0.2]}))
    assert {edits[0][0] for edits in ask.branches} == {2}
    assert len(ask.branches) == 2
    _, ask, _ = search(RPS(tau_pivot=0.9, k_max=2), opening)
    assert ask.branches == ()  # no feasible pivot: a normal forward


def test_reachability_is_inclusive() -> None:
    # An exact binary fraction, so that r * P_max is met to the bit.
    opening = look_at({1: SURE, 2: [0.5, 0.25, 0.125, 0.0625], 3: [0.7, 0.2]})
    _, ask, _ = search(RPS(r=0.25), opening)
    assert [edits[0][1] for edits in ask.branches] == [0, 1, 2]


def test_one_open_position_is_not_searched() -> None:
    _, ask, _ = search(RPS(), look_at({1: SURE, 2: HALF}))
    assert ask.branches == ()


def test_the_ablations_choose_other_pivots() -> None:
    opening = look_at({1: SURE, 2: [0.8, 0.15], 3: HALF, 4: [0.2, 0.2, 0.2, 0.2]})
    pivot = {
        name: search(RPS(pivot=name), opening)[1].branches[0][0][0]
        for name in ("max_confidence", "max_entropy", "mid_entropy")
    }
    assert pivot == {"max_confidence": 2, "max_entropy": 4, "mid_entropy": 3}
    asks = {search(RPS(pivot="random"), opening)[1] for _ in range(3)}
    assert len(asks) == 1, "the random pivot adopted the request's seed"


def test_greedy_candidates_try_only_the_top_token() -> None:
    _, ask, _ = search(RPS(candidates="greedy"), look_at({1: SURE, 2: HALF, 3: FLAT}))
    assert len(ask.branches) == 1 and ask.branches[0][0][1] == 0


def answer_with(
    anchor: list[float], branches: list[list[float]], p_anchor: list[float], pivot_row: int = 0
) -> Answer:
    """An answer over positions 2, 3, 4 whose pivot is 2: entropies of the anchor and of each branch."""
    base = look_at({2: HALF, 3: [0.7, 0.3], 4: [0.5, 0.5]}, anchor)
    looks = tuple(look_at({3: [0.5, 0.5], 4: [0.5, 0.5]}, h) for h in branches)
    return Answer(base, looks, probes=np.array(p_anchor, dtype=np.float32))


OPENING = look_at({1: SURE, 2: HALF, 3: [0.55, 0.4], 4: [0.55, 0.4]})


def test_the_branch_that_calms_the_rest_most_wins() -> None:
    answer = answer_with([1.0, 0.6, 0.6], [[0.5, 0.5], [0.1, 0.1], [0.4, 0.4]], [0.5, 0.3, 0.15])
    board, ask, third = search(RPS(lam=0.1), OPENING, answer)
    assert ask.probes == ((0, 2, 0), (0, 2, 1), (0, 2, 2))
    assert board.ids[2] == 1, "a token that is not the top-1"
    assert third is not None and third.adopted == 2


def test_plausibility_holds_a_decisive_but_unlikely_token_back() -> None:
    answer = answer_with([1.0, 0.6, 0.6], [[0.5, 0.5], [0.1, 0.1], [0.4, 0.4]], [0.5, 1e-6, 0.15])
    assert search(RPS(lam=0.1), OPENING, answer)[0].ids[2] == 0
    assert search(RPS(lam=0.0), OPENING, answer)[0].ids[2] == 1


def test_a_tie_leaves_the_pivot_masked() -> None:
    answer = answer_with([1.0, 0.5, 0.5], [[0.5, 0.5]] * 3, [0.5, 0.3, 0.15])
    board, _, third = search(RPS(lam=0.1), OPENING, answer)
    assert board.ids[2] == MASK and third is not None and third.adopted == 0


def test_the_winners_look_decides_the_next_commit() -> None:
    answer = answer_with([1.0, 0.6, 0.6], [[0.1, 0.1], [0.5, 0.5], [0.5, 0.5]], [0.5, 0.3, 0.15])
    sure = look_at({3: [0.97, 0.01], 4: [0.99, 0.01]}, [0.1, 0.1])
    answer = Answer(answer.base, (sure, *answer.branches[1:]), answer.probes)
    board = canvas(4)
    talk = RPS().decode(board)
    next(talk)
    talk.send(Answer(OPENING))
    with pytest.raises(StopIteration):
        talk.send(answer)
    assert MASK not in board.ids


# -- Proposition 1: low mean entropy certifies parallel commits ------------------------------------------

probabilities = st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=8).map(
    lambda x: sorted(np.array(x) / sum(x))[::-1]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(probabilities, min_size=1, max_size=12), st.floats(0.5, 0.99))
def test_proposition_1_entropy_certifies_parallel_commits(rows: list[list[float]], tau: float) -> None:
    look = look_at({i: [float(x) for x in p] for i, p in enumerate(rows)})
    n = len(look)
    eligible = int((look.p >= tau).sum())
    binary = -tau * math.log(tau) - (1 - tau) * math.log(1 - tau)
    mean = -float(
        score(np.array([look.entropy.mean(dtype=np.float64)]), np.ones(1), lam=0.0)[0]
    )  # H̄ as scored
    assert eligible >= max(0, n - math.floor(n * mean / binary + 1e-6))
    committed, _ = Confidence(tau).pick(look)
    assert int(committed.sum()) >= max(1, eligible)


# -- Proposition 2: a less plausible token must calm the rest proportionally more -------------------------

entropies = st.floats(0.0, 8.0)
shares = st.floats(1e-9, 1.0)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(entropies, shares), min_size=2, max_size=10), st.floats(0.0, 2.0))
def test_proposition_2_selection_margin(candidates: list[tuple[float, float]], lam: float) -> None:
    h, a = (np.array(column) for column in zip(*candidates, strict=True))
    s = score(h, a, lam)
    assert int(np.argmax(s)) == int(np.argmin(h - lam * np.log(a)))
    for c in range(len(h)):
        for d in range(len(h)):
            margin = (h[d] - h[c]) - lam * math.log(a[d] / a[c])
            if abs(margin) > 1e-9:
                assert (s[c] > s[d]) == (margin > 0)


def test_the_window_of_every_ask_is_the_block() -> None:
    talk = RPS().decode(canvas(4))
    assert next(talk).window == Window(1, 5)
