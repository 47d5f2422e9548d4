"""Traces survive the disk, name their version, and refuse what they do not understand."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ripple
from ripple import trace
from ripple.engine.facts import tokens
from ripple.trace import FINISHES, KINDS, VERSION, Event, contradiction
from ripple.view import CAUSES


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
    assert sum(e.data["canvases"] for e in events if e.kind == "forward") == result.canvases
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


@pytest.mark.parametrize("decoder", ["rps:tau_pivot=0.3", "rps:tau_pivot=0.3,anchor=packed", "glide", "lopa"])
def test_a_lookahead_tells_what_each_branch_would_make_of_the_rest(
    engine: ripple.Engine, decoder: str
) -> None:
    events = engine.generate([1, 2, 3], decoder=decoder, length=24, block=8, trace=True).trace
    n_followed = 0
    for before, choice, after in zip(events, events[1:], events[2:], strict=False):
        if choice.kind not in ("search", "branches"):
            continue
        assert before.data["kind"] == "lookahead"
        told = choice.data
        branches = before.data["branches"][-len(told["token"]) :]
        assert [branch["edits"][0][1] for branch in branches] == told["token"]
        for branch, mean in zip(branches, told.get("mean_entropy", [])[1:], strict=False):
            assert np.mean(branch["entropy"] or [0]) == pytest.approx(mean, abs=1e-3)
        chosen = told["chosen"]
        if chosen is not None and after.kind == "commit":  # what follows comes from the branch's own look
            follower = events[events.index(after) + 1]
            guess = dict(zip(before.data["pos"], before.data["token"], strict=True))
            guess |= dict(zip(branches[chosen]["pos"], branches[chosen]["token"], strict=True))
            if follower.kind == "commit" and follower.data["cause"] != "end":
                n_followed += 1
                assert all(
                    guess[pos] == token
                    for pos, token in zip(follower.data["pos"], follower.data["token"], strict=True)
                )
    assert n_followed
    assert not any(e.data.get("branches") for e in events if e.data.get("kind") == "normal")


def test_every_token_of_a_trace_has_its_piece(generated: list[Event]) -> None:
    end = generated[-1].data
    named = {token for event in generated for token in tokens(event.data)} - {generated[0].data["mask_id"]}
    assert {str(token) for token in named} == set(end["pieces"])
    assert generated[0].data["prompt_text"] == "Question: 2 + 3"


@pytest.fixture(scope="module")
def generated() -> list[Event]:
    """A trace with text, of the document's example."""
    engine = ripple.load("tiny-llada", device="cpu")
    return engine.generate("Question: 2 + 3", decoder="rps:k_max=3", length=4, trace=True).trace


def test_results_carry_no_trace_unless_asked(engine: ripple.Engine) -> None:
    assert engine.generate([1], decoder="rps", length=8, block=8).trace is None


@pytest.mark.parametrize("name", ["rps", "confidence"])
def test_text_events_of_a_stream_join_to_the_text(engine: ripple.Engine, name: str) -> None:
    events = list(engine.stream([1, 2, 3], decoder=name, length=24, block=8))
    told = "".join(event.data["text"] for event in events if event.kind == "text")
    assert told == events[-1].data["text"] and events[-1].kind == "end"
    assert contradiction(events) is None


BAD = [
    ("", "begins with a start event"),
    ("not json", "line 1: not valid JSON"),
    ('{"event": "start"}', "line 1: not a trace event"),
    ('{"event": "party", "t": 0}', "unknown event 'party'"),
    ('{"event": "end", "t": 0}', "begins with a start event"),
    (json.dumps({"event": "start", "t": 0, "v": VERSION + 1}), f"trace version {VERSION + 1}"),
    (json.dumps({"event": "start", "t": 0, "v": 0}), f"trace version 0, this ripple reads 1 to {VERSION}"),
    (json.dumps({"event": "start", "t": 0, "v": True}), "trace version True"),
    (json.dumps({"event": "start", "t": 0, "v": VERSION}), "the event 'start' lacks the field 'decoder'"),
    ('{"event": "start", "t": NaN}', "line 1: not a trace event"),
    ('{"event": "start", "t": "0"}', "line 1: not a trace event"),
    ("[" * 100_000, "line 1: not valid JSON"),
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


# -- what contradicts itself -------------------------------------------------------------------------------

Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
def lines(engines: dict[str, ripple.Engine], tmp_path_factory: pytest.TempPathFactory) -> Lines:
    """The lines of a trace with searches, revoked tokens being absent."""
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    result = engines["llada"].generate([1, 2, 3], decoder="rps:tau_pivot=0.3", length=8, block=8, trace=True)
    ripple.write_trace(path, result.trace)
    return [json.loads(line) for line in path.read_text().splitlines()]


def _first(lines: Lines, kind: str) -> dict[str, Any]:
    return next(line for line in lines if line["event"] == kind)


def _branch(lines: Lines) -> dict[str, Any]:
    return next(line for line in lines if line.get("branches"))["branches"][0]


CONTRADICTIONS: list[tuple[str, Callable[[Lines], object], str]] = [
    ("counts", lambda ls: ls[-1].update(nfe_normal=99), "counts other forwards than the trace has"),
    ("canvases", lambda ls: ls[-1].update(canvases=1), "counts other forwards than the trace has"),
    ("tokens", lambda ls: ls[-1]["token"].reverse(), "other tokens than were committed"),
    ("finish", lambda ls: ls[-1].update(finish="done"), "knows no finish 'done'"),
    ("incomplete", lambda ls: ls[-1].update(finish="incomplete"), "ends as 'incomplete' without masks"),
    ("pieces", lambda ls: ls[-1]["pieces"].update({"1": 1}), "has no proper field 'pieces'"),
    ("after the end", lambda ls: ls.append(ls[-1]), "goes on after its end event"),
    ("two starts", lambda ls: ls.insert(1, ls[0]), "its start event is not one"),
    ("no length", lambda ls: ls[0].update(length=0), "its start event is not one"),
    ("huge length", lambda ls: ls[0].update(length=1 << 30), "its start event is not one"),
    ("a forward is gone", lambda ls: ls.remove(_first(ls, "forward")), "forward 2 is out of order"),
    ("a commit twice", lambda ls: ls.insert(3, _first(ls, "commit")), "committed where one stands already"),
    (
        "a position twice",
        lambda ls: _first(ls, "commit").update(pos=[5, 5], token=[1, 1], p=[1.0, 1.0]),
        "committed where one stands already",
    ),
    (
        "revoked",
        lambda ls: ls.insert(1, {"event": "revoke", "t": 0, "pos": [4], "cause": "doubt"}),
        "revoked where none stands",
    ),
    ("outside", lambda ls: _first(ls, "commit")["pos"].__setitem__(0, 2), "a position outside the response"),
    ("lengths", lambda ls: _first(ls, "commit")["pos"].append(9), "has lists of different length"),
    ("chosen", lambda ls: _first(ls, "search").update(chosen=99), "chose candidate 99 of"),
    ("pivot", lambda ls: _first(ls, "search").update(pivot=0), "names a pivot outside the response"),
    ("scores", lambda ls: _first(ls, "search")["score"].pop(), "has not one score for each candidate"),
    ("branches", lambda ls: _branch(ls).pop("edits"), "has no proper field 'branches'"),
    ("edits", lambda ls: _branch(ls)["edits"][0].pop(), "has no proper field 'branches'"),
    ("an edit", lambda ls: _branch(ls)["edits"].append([0, 1]), "has no proper field 'branches'"),
    ("entropies", lambda ls: _branch(ls)["entropy"].append(1.0), "has no proper field 'branches'"),
    ("changes", lambda ls: _branch(ls)["token"].append(1), "has no proper field 'branches'"),
]


@pytest.mark.parametrize(
    "spoil, sentence", [case[1:] for case in CONTRADICTIONS], ids=[c[0] for c in CONTRADICTIONS]
)
def test_a_trace_that_contradicts_itself_is_refused(
    lines: Lines, spoil: Callable[[Lines], object], sentence: str, tmp_path: Path
) -> None:
    spoilt = copy.deepcopy(lines)
    spoil(spoilt)
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in spoilt))
    with pytest.raises(ripple.RippleError, match=re.escape(sentence)) as caught:
        ripple.read_trace(path)
    assert "\n" not in str(caught.value)


def test_a_canvas_with_masks_has_no_finish_length(lines: Lines, tmp_path: Path) -> None:
    """As if the request had been cut short: the last commit is gone, and the end event tells of a mask."""
    spoilt = copy.deepcopy(lines)
    last = max(i for i, line in enumerate(spoilt) if line["event"] == "commit")
    for pos in spoilt.pop(last)["pos"]:
        spoilt[-1]["token"][pos - 3] = spoilt[0]["mask_id"]
    path = tmp_path / "trace.jsonl"
    for finish in FINISHES:
        spoilt[-1]["finish"] = finish
        path.write_text("".join(json.dumps(line) + "\n" for line in spoilt))
        if finish == "length":
            with pytest.raises(ripple.RippleError, match="ends as 'length' with masks"):
                ripple.read_trace(path)
        else:
            assert ripple.read_trace(path)[-1].data["finish"] == finish


# -- older versions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_older_versions_are_read_as_this_one_writes_them(lines: Lines, version: int, tmp_path: Path) -> None:
    older = copy.deepcopy(lines)
    older[0]["v"] = version
    del older[0]["prompt_text"]
    for line in older:
        line.pop("branches", None)
        if version == 1 and "canvases" in line:
            line["rows"] = line.pop("canvases")
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in older))
    events = ripple.read_trace(path)
    assert events[0].data["v"] == VERSION and events[0].data["prompt_text"] == ""
    assert [e.data.get("canvases") for e in events] == [line.get("canvases") for line in lines]
    ripple.write_trace(path, events)
    assert ripple.read_trace(path) == events


# -- the document ------------------------------------------------------------------------------------------

DOCUMENT = Path(__file__).parent.parent / "docs" / "trace.md"


def test_the_document_describes_every_event_and_field() -> None:
    text = DOCUMENT.read_text()
    assert f"# The trace format, version {VERSION}" in text
    for kind, fields in trace._FIELDS.items():
        section = text.split(f"\n## {kind}\n")[1].split("\n## ")[0]
        assert all(f"| `{name}` |" in section for name in fields), kind
    assert all(f"| `{finish}` |" in text for finish in FINISHES)
    assert all(f"| `{cause}` |" in text for cause in CAUSES if cause != "revoked")


def test_the_example_of_the_document_is_what_its_command_writes(generated: list[Event]) -> None:
    text = DOCUMENT.read_text()
    shown = [json.loads(line) for line in text.split("```json\n")[1].split("```")[0].splitlines()]
    assert '`ripple generate "Question: 2 + 3" --decoder rps --length 4 --k-max 3 --trace out.jsonl`' in text
    assert len(generated) == len(shown)
    for event, line in zip(generated, shown, strict=True):
        assert event.kind == line.pop("event") and line.pop("t") >= 0
        for name, value in line.items():
            if name != "seconds":
                is_number = isinstance(value, float) or (
                    isinstance(value, list) and isinstance(value[0], float)
                )
                if name == "branches":
                    for told, branch in zip(event.data[name], value, strict=True):
                        assert told.pop("entropy") == pytest.approx(branch.pop("entropy"), rel=1e-2)
                expected = pytest.approx(value, rel=1e-2) if is_number else value
                assert event.data[name] == expected, (event.kind, name)
