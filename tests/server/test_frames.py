"""Streams of canvases: every frame fits its schema, and joined they are the trace of the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import ripple
from ripple.server.frames import canvas_schema
from ripple.trace import as_line
from tests.server.conftest import LENGTH, PROMPT, Server, serving

WRITTEN = Path(__file__).parent.parent.parent / "docs" / "canvas-frame.schema.json"


def streamed(server: Server, n: int, **fields: Any) -> list[dict[str, Any]]:
    """The chunks of a stream of canvases."""
    body = {"prompt": PROMPT, "n": n, "stream": True, "ripple": {"stream": "canvas", **fields}}
    with server.http() as http, http.stream("POST", "/v1/completions", json=body) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def closed(schema: Any) -> Any:
    """A schema that allows no field which it does not declare."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: closed(one) for name, one in schema.items()}
    return inner | {"additionalProperties": False} if isinstance(inner.get("properties"), dict) else inner


CLOSED = jsonschema.Draft202012Validator(closed(canvas_schema()))


def test_the_written_schema_is_the_one_of_the_code() -> None:
    assert json.loads(WRITTEN.read_text()) == canvas_schema()


@pytest.mark.parametrize("decoder", ["rps", "glide", "glide:pivots=2", "wino", "lopa", "edit"])
def test_frames_fit_the_schema_and_join_to_the_trace(
    server: Server, engine: ripple.Engine, tmp_path: Path, decoder: str
) -> None:
    chunks = streamed(server, n=2, decoder=decoder)
    frames = [chunk["ripple"] for chunk in chunks if not chunk["choices"]]
    for frame in frames:
        CLOSED.validate(frame)
    for index in range(2):
        how: dict[str, Any] = {"decoder": decoder, "length": LENGTH, "stop_at_end": True, "seed": index}
        expected = engine.generate(PROMPT, **how, trace=True)
        mine = [frame for frame in frames if frame["index"] == index]
        events = [event for frame in mine for event in frame["events"]]
        assert plain(events) == plain([as_line(event) for event in expected.trace or []])
        path = tmp_path / f"{index}.jsonl"
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
        assert ripple.read_trace(path)[-1].data["text"] == expected.text
        pieces = {token: text for frame in mine for token, text in frame["pieces"].items()}
        assert pieces == events[-1]["pieces"]
        texts = [c["text"] for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        assert "".join(texts) == expected.text


def test_rare_fields_are_declared_too() -> None:
    """Of a search with two pivots, and of a lookahead budget; only a server with a budget takes one."""
    with serving("--length", "24", "--lookahead-budget", "0.1") as limited:
        frames = [
            chunk["ripple"]
            for fields in (
                {"decoder": "glide:pivots=2"},
                {"decoder": "glide:pivots=2", "lookahead_budget": 9},
            )
            for chunk in streamed(limited, n=1, **fields)
            if not chunk["choices"]
        ]
    names = {name for frame in frames for event in frame["events"] for name in event}
    assert {"most_rows", "pivot_2", "token_2", "branches"} <= names
    for frame in frames:
        CLOSED.validate(frame)


def test_a_piece_is_sent_before_or_with_the_first_event_that_names_its_token(server: Server) -> None:
    known: set[str] = set()
    for chunk in streamed(server, n=1, decoder="rps"):
        if not chunk["choices"]:
            known |= set(chunk["ripple"]["pieces"])
            for event in chunk["ripple"]["events"]:
                assert {str(token) for token in event.get("token", ())} <= known


def test_a_trace_comes_with_the_last_chunk_of_a_stream(server: Server) -> None:
    body = {"prompt": PROMPT, "ripple": {"trace": True}}
    with server.http() as http:
        whole = http.post("/v1/completions", json=body).json()
        stream = http.post("/v1/completions", json=body | {"stream": True}).text
    last = json.loads(stream.strip().split("\n\n")[-2].removeprefix("data: "))
    trace = last["choices"][0]["ripple"]["trace"]
    assert trace[-1]["text"] == whole["choices"][0]["text"]
    assert plain(trace) == plain(whole["choices"][0]["ripple"]["trace"])


def plain(events: list[dict[str, Any]]) -> Any:
    """Events without their fractions: times, and numbers whose last digits depend on company."""
    return json.loads(json.dumps(events), parse_float=lambda digits: None)
