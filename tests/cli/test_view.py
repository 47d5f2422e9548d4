"""`ripple view` on traces that the command line wrote, and on what became of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli


@pytest.fixture
def trace(generate: Cli, tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    assert generate("hello", "--length", 48, "--tau-pivot", "0.3", "--trace", path).code == 0
    return path


def test_shows_the_last_state_and_the_summary(cli: Cli, trace: Path) -> None:
    done = cli("view", trace)
    assert done.code == 0 and "0 of 48 masked" in done.out
    causes = json.loads(cli("view", trace, "--json").out)["commits"]
    assert {"standard", "pivot"} <= set(causes) and all(f"■ {cause}" in done.out for cause in causes)
    assert "cause" in done.out and "standard" in done.out and "canvas" in done.out
    assert "candidate" in done.out and "p_anchor" in done.out and "[MASK]" in done.out
    assert "filled the canvas" in done.out or "ended with an end token" in done.out
    assert done.out == cli("view", trace, "--no-animation").out


def test_one_frame(cli: Cli, trace: Path) -> None:
    first = cli("view", trace, "--frame", 1)
    assert first.code == 0 and "NFE 1 of " in first.out and "▒" in first.out and "share" not in first.out
    done = cli("view", trace, "--frame", 1000)
    assert done.code == 2 and "--frame must lie in 1 ... " in done.err


def test_summary_for_machines(cli: Cli, trace: Path) -> None:
    done = cli("view", trace, "--json")
    totals = json.loads(done.out)
    assert totals["decoder"] == "glide" and totals["nfe"] == totals["nfe_normal"] + totals["nfe_lookahead"]
    assert sum(totals["commits"].values()) == 48 and totals["finish"] in ("length", "end")
    assert done.out.count("\n") == 1
    assert "give one of them" in cli("view", trace, "--json", "--frame", 1).err


@pytest.mark.parametrize("decoder", ["lopa", "wino", "ete", "klass", "default"])
def test_every_kind_of_trace(generate: Cli, cli: Cli, tmp_path: Path, decoder: str) -> None:
    path = tmp_path / f"{decoder}.jsonl"
    generate("hello", "--length", 16, "--decoder", decoder, "--trace", path)
    done = cli("view", path)
    assert done.code == 0 and "0 of 16 masked" in done.out
    assert ("branches, forward" in done.out) == (decoder == "lopa")


def test_the_causes_forced_and_end_are_drawn(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    model = ("--model", "tiny-dream", "--length", 16, "--block", 8, "--trace", path)
    assert cli("generate", "hi", *model, "--cache", "dual", "--match-fast-dllm-first").code == 0
    assert "■ forced" in cli("view", path).out
    model = ("--model", "tiny-llada", "--length", 64, "--trace", path)
    assert cli("generate", "hi", *model, "--decoder", "learn2pd", "--end-token", 2001).code == 0
    assert "■ end" in cli("view", path).out


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "begins with a start event"),
        ("nonsense", "line 1: not valid JSON"),
        ("[]", "line 1: not a trace event"),
        ('{"event": "start", "t": 0, "v": 9}', "trace version 9"),
        ('{"event": "start", "t": 0, "v": 2}', "lacks the field"),
    ],
)
def test_bad_traces(cli: Cli, tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    done = cli("view", path)
    assert done.code == 2 and sentence in done.err and done.err.count("\n") == 1


def test_missing_trace_and_bad_speed(cli: Cli, tmp_path: Path) -> None:
    assert "Cannot read the trace" in cli("view", tmp_path / "none").err
    for speed in (0, -1, "nan"):
        assert "--speed must be above 0" in cli("view", tmp_path / "none", "--speed", speed).err


def test_a_trace_that_was_cut_off(cli: Cli, trace: Path) -> None:
    lines = trace.read_text().splitlines()
    trace.write_text("\n".join(lines[:3]) + "\n")
    done = cli("view", trace)
    assert done.code == 0 and "NFE 1 of 1" in done.out and "cut off: it has no end event" in done.out
    trace.write_text(lines[0] + "\n")
    assert cli("view", trace).code == 0


# -- corrupted traces: a sentence or a drawing, never a traceback ------------------------------------------

ODD: list[Any] = [
    None, True, -1, 0, 1e300, 10**30, 2**40, 0.5, "", "x" * 3000, "\x1b[2J[/b]\ud800", [], [1], [[1]], {},
    {"a": {"b": []}}, float("nan"), float("inf"), "end", [None] * 3,
]  # fmt: skip


def _bytes(rng: random.Random, data: bytes) -> bytes:
    """Change, remove or repeat bytes."""
    start, n = rng.randrange(len(data)), rng.choice([1, 1, 3, 40])
    other = bytes(rng.randrange(256) for _ in range(n))
    return data[:start] + rng.choice([other, b"", data[start : start + n] * 2]) + data[start + n :]


def _line_order(rng: random.Random, data: bytes) -> bytes:
    """Remove, repeat or exchange lines."""
    lines = data.splitlines(keepends=True)
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    rng.choice([lambda: lines.pop(i), lambda: lines.insert(i, lines[j]), lambda: lines.reverse()])()
    return b"".join(lines)


def _value(rng: random.Random, data: bytes) -> bytes:
    """Replace one value, however deep, or remove it."""
    lines = [json.loads(line) for line in data.splitlines()]
    place = rng.choice(lines)
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = rng.choice(keys)
        deeper = isinstance(place[key], dict | list) and place[key] and rng.random() < 0.6
        if not deeper:
            break
        place = place[key]
    if rng.random() < 0.2:
        del place[key]
    else:
        place[key] = rng.choice(ODD)
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _deep(rng: random.Random, data: bytes) -> bytes:
    """Nest one value very deeply."""
    depth = rng.choice([50, 900, 200_000])
    return data.replace(b'"fields": {', b'"fields": {"a": ' + b"[" * depth + b"]" * depth + b", ", 1)


@pytest.mark.parametrize("corrupt", [_bytes, _line_order, _value, _deep])
@pytest.mark.parametrize("decoder", ["rps", "lopa"])
def test_a_corrupted_trace_is_a_sentence_or_a_drawing(
    generate: Cli, cli: Cli, tmp_path: Path, decoder: str, corrupt: Callable[[random.Random, bytes], bytes]
) -> None:
    path = tmp_path / "trace.jsonl"
    generate("hello", "--length", 8, "--decoder", decoder, "--set", "tau=0.3", "--trace", path)
    data, codes = path.read_bytes(), []
    for seed in range(4 if corrupt is _deep else 100):
        path.write_bytes(corrupt(random.Random(f"{decoder} {seed}"), data))
        for argv in ((), ("--json",), ("--frame", 1)):
            done = cli("view", path, *argv)
            assert done.code in (0, 2), (seed, argv, done.err)
            assert done.err.count("\n") == (done.code == 2), (seed, argv)
            assert "\x1b" not in done.out + done.err, (seed, argv)
            codes.append(done.code)
    assert 2 in codes


# -- as a page ---------------------------------------------------------------------------------------------


def test_traces_become_one_page(generate: Cli, cli: Cli, trace: Path, tmp_path: Path) -> None:
    other, out = tmp_path / "other.jsonl", tmp_path / "out.html"
    generate("hello", "--decoder", "wino", "--trace", other)
    done = cli("view", trace, other, "--html", out)
    assert done.code == 0 and done.out.split() == [str(out)]
    text = out.read_text()
    assert text.count('"event":"start"') == 2 and '"blame":null' in text
    assert len(text.encode()) < 300_000 + trace.stat().st_size + other.stat().st_size


def test_a_page_marks_the_guilty_commit(cli: Cli, trace: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    commits, end = [line for line in lines if line["event"] == "commit"], lines[-1]
    tokens = [end["pieces"][str(token)] for token in commits[2]["token"]]
    case = {"text": end["text"], "commit": 3, "of": len(commits), "tokens": tokens}
    blame, out = tmp_path / "blame.jsonl", tmp_path / "out.html"
    blame.write_text(json.dumps({"cases": [case]}) + "\n")
    assert cli("view", trace, "--html", out, "--blame", blame).code == 0
    assert '"blame":3' in out.read_text()


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["TRACE", "TRACE"], "go with --html"),
        (["TRACE", "--blame", "none.jsonl"], "go with --html"),
        (["TRACE", "--html", "no/out.html"], "there is no folder"),
        (["TRACE", "--html", "out.html", "--blame", "no.jsonl"], "there is no such file"),
        (["TRACE", "--html", "out.html", "--blame", "none.jsonl"], "blames no commit of these traces"),
    ],
)
def test_what_no_page_can_be_made_of_is_said(
    cli: Cli, trace: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(trace.parent)
    Path("none.jsonl").write_text('{"cases": []}\n')
    done = cli("view", *(str(trace) if word == "TRACE" else word for word in words))
    assert done.code == 2 and sentence in done.err and not Path("out.html").exists()
