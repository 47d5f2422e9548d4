"""The canvas: blocks, commits, revocations, and who hears of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ripple.canvas import Canvas, Window
from ripple.errors import RippleError

MASK = 99


def floats(n: int) -> np.ndarray:
    return np.ones(n, dtype=np.float32)


@given(st.integers(1, 40), st.integers(1, 50), st.integers(1, 50))
def test_blocks_tile_the_response_from_left_to_right(prompt: int, length: int, block: int) -> None:
    canvas = Canvas(np.zeros(prompt, dtype=np.int64), length, block, MASK)
    windows = list(canvas.windows())
    assert [p for w in windows for p in range(*w)] == list(range(prompt, prompt + length))
    assert all(w.stop - w.start == block for w in windows[:-1])


def test_commits_and_revocations_are_seen_by_the_observer() -> None:
    canvas = Canvas(np.array([1, 2]), 4, 2, MASK)
    heard: list[tuple[str, dict[str, Any]]] = []
    canvas.observer = lambda kind, data: heard.append((kind, data))
    canvas.commit(np.array([3]), np.array([7]), floats(1), "standard")
    assert canvas.masked(Window(2, 4)).tolist() == [2] and canvas.revealed(Window(2, 4)).tolist() == [3]
    canvas.revoke(np.array([3]), "doubt")
    assert canvas.response.tolist() == [MASK] * 4
    canvas.note("search", lambda: {"pivot": 3})
    assert [kind for kind, _ in heard] == ["commit", "revoke", "search"]
    assert heard[0][1] == {"pos": [3], "token": [7], "p": [1.0], "cause": "standard"}


def test_facts_are_only_gathered_when_someone_listens() -> None:
    canvas = Canvas(np.array([1]), 2, 2, MASK)
    canvas.note("search", lambda: pytest.fail("nobody listens"))


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def canvas_of_four() -> Canvas:
    canvas = Canvas(ints(1, 2), 4, 2, MASK, vocab_size=100)
    canvas.commit(ints(3), ints(5), floats(1), "standard")
    return canvas


def test_a_list_of_probabilities_is_refused_whether_anybody_listens_or_not() -> None:
    for observer in (None, lambda kind, data: None):
        canvas = Canvas(ints(1, 2), 4, 4, mask_id=99, vocab_size=100)
        canvas.observer = observer
        with pytest.raises(AttributeError):
            canvas.commit(ints(2), ints(6), [1.0], "standard")  # type: ignore[arg-type]
        assert canvas.n_masked == 4


@pytest.mark.parametrize("pos, token", [(np.array([2.5]), ints(6)), (ints(2), np.array([6.0]))])
def test_a_commit_is_of_whole_numbers(pos: Any, token: Any) -> None:
    canvas = Canvas(ints(1, 2), 4, 4, mask_id=99, vocab_size=100)
    with pytest.raises(RippleError, match="positions and tokens must be whole numbers"):
        canvas.commit(pos, token, np.ones(1, np.float32), "standard")
    assert canvas.n_masked == 4


@pytest.mark.parametrize(
    "pos, token, sentence",
    [
        (ints(3), ints(6), "position 3, which already holds a token"),
        (ints(2, 2), ints(6, 6), "a position twice"),
        (ints(1), ints(6), "position 1, which is outside the response, 2 to 5"),
        (ints(6), ints(6), "position 6, which is outside"),
        (ints(-1), ints(6), "position -1, which is outside"),
        (ints(2), ints(100), "token 100; allowed are 0 to 99"),
        (ints(2), ints(-1), "token -1"),
        (ints(2), ints(MASK), "without the mask 99"),
        (ints(2, 4), ints(6), "2 positions and 1 tokens"),
    ],
)
def test_a_wrong_commit_is_refused_and_changes_nothing(
    pos: np.ndarray, token: np.ndarray, sentence: str
) -> None:
    canvas = canvas_of_four()
    before = canvas.ids.tolist()
    with pytest.raises(RippleError, match=sentence):
        canvas.commit(pos, token, floats(len(pos)), "standard")
    assert canvas.ids.tolist() == before


def test_a_commit_says_how_sure_it_is_of_each_token() -> None:
    canvas = canvas_of_four()
    with pytest.raises(RippleError, match="names 1 positions and 2 probabilities"):
        canvas.commit(ints(2), ints(6), floats(2), "standard")
    assert canvas.n_masked == 3


@pytest.mark.parametrize("pos, sentence", [(ints(0), "outside the response"), (ints(3, 3), "twice")])
def test_a_wrong_revocation_is_refused(pos: np.ndarray, sentence: str) -> None:
    canvas = canvas_of_four()
    with pytest.raises(RippleError, match=sentence):
        canvas.revoke(pos, "doubt")
    assert canvas.response.tolist() == [MASK, 5, MASK, MASK]


def test_tokens_change_by_commit_and_revoke_alone() -> None:
    canvas = canvas_of_four()
    with pytest.raises(ValueError, match="read-only"):
        canvas.ids[2] = 7
    with pytest.raises(ValueError, match="read-only"):
        canvas.response[0] = 7


def test_the_cause_of_every_commit_is_kept() -> None:
    canvas = canvas_of_four()
    canvas.commit(ints(4, 5), ints(7, 8), floats(2), "pivot")
    canvas.revoke(ints(5), "doubt")
    assert canvas.causes == [None, "standard", "pivot", None] and canvas.n_masked == 2
