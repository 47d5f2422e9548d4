"""The canvas: blocks, commits, revocations, and who hears of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ripple.canvas import Canvas, Window

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


def test_a_token_is_never_overwritten() -> None:
    canvas = Canvas(np.array([1]), 2, 2, MASK)
    canvas.commit(np.array([1]), np.array([5]), floats(1), "standard")
    with pytest.raises(AssertionError, match="must be masked"):
        canvas.commit(np.array([1]), np.array([6]), floats(1), "standard")
