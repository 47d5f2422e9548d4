"""End fill: once an end token is final, what follows it is filled at once and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ripple
from ripple.decoders import DECODERS

PROMPTS = [[3, 4, 5], [9, 8, 7, 6], [1], [2, 2, 2], [11, 30], [17, 5, 23]]


@pytest.fixture
def ending(folders: dict[str, Path], family: str, monkeypatch: pytest.MonkeyPatch) -> ripple.Engine:
    """An engine for which a quarter of the tokens end a text."""
    engine = ripple.load(folders[family], device="cpu", dtype="float32")
    monkeypatch.setattr(engine.model, "config", replace(engine.model.config, end_ids=tuple(range(16))))
    return engine


@pytest.mark.parametrize("name", DECODERS)
def test_the_answer_is_the_same_in_no_more_forwards(ending: ripple.Engine, name: str) -> None:
    n = len(PROMPTS)
    caches = ["none"] * n + ["dual"] * n + ["slide"] * n
    how: dict[str, Any] = {"decoder": name, "length": 24, "block": 8, "cache": caches, "temperature": 0.5}
    plain = ending.generate(PROMPTS * 3, end_fill=False, **how)
    filled = ending.generate(PROMPTS * 3, end_fill=True, **how)
    for first in (0, n, 2 * n):
        same_answers(plain[first : first + n], filled[first : first + n])


def same_answers(plain: list[ripple.Result], filled: list[ripple.Result]) -> None:
    for a, b in zip(plain, filled, strict=True):
        assert (a.new_tokens, a.finish) == (b.new_tokens, b.finish)
        assert b.nfe <= a.nfe and b.is_full
        n = len(b.new_tokens)
        if b.nfe < a.nfe:
            assert "end" in b.causes[n:] and "end" not in b.causes[:n]
        assert {b.token_ids[i] for i in range(24) if b.causes[i] == "end" and i >= n} <= {b.new_tokens[-1]}
    assert sum(b.nfe for b in filled) < sum(a.nfe for a in plain)


def test_glide_fills_and_the_others_do_not_unless_asked(ending: ripple.Engine) -> None:
    for name in DECODERS:
        own = ending.generate(PROMPTS, decoder=name, length=24, block=8)
        forced = ending.generate(PROMPTS, decoder=name, length=24, block=8, end_fill=name == "glide")
        assert [(a.token_ids, a.nfe) for a in own] == [(b.token_ids, b.nfe) for b in forced]


def test_a_trace_names_the_cause(ending: ripple.Engine) -> None:
    results = ending.generate(PROMPTS, decoder="confidence", length=24, block=8, end_fill=True, trace=True)
    commits = [e.data for r in results for e in r.trace or [] if e.kind == "commit"]
    assert any(data["cause"] == "end" for data in commits)
    for result in results:
        at = [p for e in result.trace or [] if e.kind == "commit" for p in e.data["pos"]]
        assert sorted(at) == list(range(min(at), min(at) + 24)), "every position is committed once"
