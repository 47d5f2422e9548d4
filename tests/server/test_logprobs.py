"""Log probabilities in the order of the text, whatever is committed beyond it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ripple.server.logprobs import CommitLog
from ripple.trace import Event

LETTERS: Any = SimpleNamespace(decode=lambda ids, skip_special: "".join(map(chr, ids)))


def _commit(at: int, text: str, p: float) -> Event:
    pos = list(range(at, at + len(text)))
    return Event("commit", 0.0, {"pos": pos, "token": [ord(one) for one in text], "p": [p] * len(text)})


def test_a_token_beyond_the_text_may_be_revoked_and_another_one_counts() -> None:
    """A slow reader is told of the end of one block and of the begin of the next at once."""
    log = CommitLog(LETTERS, prompt_len=10)
    log.feed([_commit(10, "ab", 0.5), _commit(12, "x", 0.5)])
    assert [one.text for one in log.take(2)] == ["a", "b"]
    log.feed([Event("revoke", 0.0, {"pos": [12]}), _commit(12, "c", 1.0)])
    (last,) = log.take(3)
    assert last.text == "c" and last.logprob == pytest.approx(0)
