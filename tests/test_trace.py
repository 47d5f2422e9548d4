"""Traces survive the disk, name their version, and refuse what they do not understand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ripple
from ripple.trace import KINDS, VERSION


@pytest.mark.parametrize("name", ["rps", "lopa", "wino"])
def test_a_trace_round_trips_and_accounts_for_every_token(
    engine: ripple.Engine, name: str, tmp_path: Path
) -> None:
    result = engine.generate([1, 2, 3], decoder=name, length=24, block=8, trace=True)
    path = tmp_path / "trace.jsonl"
    ripple.write_trace(path, result.trace)
    events = ripple.read_trace(path)
    assert [e.kind for e in events] == [e.kind for e in result.trace]
    assert {e.kind for e in events} <= set(KINDS)
    assert events[0].kind == "start" and events[0].data["v"] == VERSION and events[-1].kind == "end"
    assert sum(e.kind == "forward" for e in events) == result.nfe
    assert sum(e.data["rows"] for e in events if e.kind == "forward") == result.rows
    state: dict[int, int] = {}
    for event in events:
        if event.kind == "commit":
            state.update(zip(event.data["pos"], event.data["token"], strict=True))
        if event.kind == "revoke":
            for pos in event.data["pos"]:
                del state[pos]
    assert [state[p] for p in sorted(state)] == result.token_ids
    assert [e.t for e in events] == sorted(e.t for e in events)
    assert not list(tmp_path.glob("*.part"))


def test_a_search_tells_candidates_scores_and_entropies(engine: ripple.Engine) -> None:
    result = engine.generate([1, 2, 3], decoder="rps", length=24, block=8, trace=True)
    searches = [e.data for e in result.trace if e.kind == "search"]
    assert searches
    for facts in searches:
        n = len(facts["token"])
        assert n >= 2 and len(facts["p"]) == len(facts["p_anchor"]) == n
        assert len(facts["score"]) == len(facts["mean_entropy"]) == n + 1
        best = max(
            (i for i in range(n + 1) if facts["score"][i] is not None),
            key=lambda i, s=facts["score"]: (s[i], -i),
        )
        assert facts["chosen"] == (best - 1 if best else None)
    pivots = [e.data for e in result.trace if e.kind == "commit" and e.data["cause"] == "pivot"]
    assert len(pivots) == sum(facts["chosen"] is not None for facts in searches)


def test_results_carry_no_trace_unless_asked(engine: ripple.Engine) -> None:
    assert engine.generate([1], decoder="rps", length=8, block=8).trace is None


BAD = [
    ("", "begins with a start event"),
    ("not json", "line 1: not a trace event"),
    ('{"event": "start"}', "line 1: not a trace event"),
    ('{"event": "party", "t": 0}', "unknown event 'party'"),
    ('{"event": "end", "t": 0}', "begins with a start event"),
    (json.dumps({"event": "start", "t": 0, "v": VERSION + 1}), f"trace version {VERSION + 1}"),
]


@pytest.mark.parametrize("text, sentence", BAD)
def test_files_that_are_no_traces_are_refused(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(ripple.RippleError, match=sentence):
        ripple.read_trace(path)


def test_missing_places_are_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ripple.RippleError, match="Cannot read the trace"):
        ripple.read_trace(tmp_path / "no.jsonl")
    with pytest.raises(ripple.RippleError, match="Cannot write the trace"):
        ripple.write_trace(tmp_path / "no" / "trace.jsonl", [])
