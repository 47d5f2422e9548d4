"""`ripple view` on traces that the command line wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


@pytest.fixture
def trace(generate: Cli, tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    assert generate("hello", "--length", 48, "--tau-pivot", "0.3", "--trace", path).code == 0
    return path


def test_shows_the_last_state_and_the_summary(cli: Cli, trace: Path) -> None:
    done = cli("view", trace)
    assert done.code == 0 and "0 of 48 masked" in done.out and "■ fallback" in done.out
    assert "cause" in done.out and "standard" in done.out
    assert "candidate" in done.out and "p_anchor" in done.out and "[MASK]" in done.out
    assert done.out == cli("view", trace, "--no-animation").out


def test_one_frame(cli: Cli, trace: Path) -> None:
    first = cli("view", trace, "--frame", 1)
    assert first.code == 0 and "NFE 1 of " in first.out and "▒" in first.out and "share" not in first.out
    done = cli("view", trace, "--frame", 1000)
    assert done.code == 2 and "--frame must lie in 1 ... " in done.err


def test_summary_for_machines(cli: Cli, trace: Path) -> None:
    totals = json.loads(cli("view", trace, "--json").out)
    assert totals["decoder"] == "rps" and totals["nfe"] == totals["nfe_normal"] + totals["nfe_lookahead"]
    assert sum(totals["commits"].values()) == 48 and totals["finish"] == "length"


@pytest.mark.parametrize("decoder", ["lopa", "wino", "ete", "klass", "default"])
def test_every_kind_of_trace(generate: Cli, cli: Cli, tmp_path: Path, decoder: str) -> None:
    path = tmp_path / f"{decoder}.jsonl"
    generate("hello", "--length", 16, "--decoder", decoder, "--trace", path)
    done = cli("view", path)
    assert done.code == 0 and "0 of 16 masked" in done.out
    assert ("branches, forward" in done.out) == (decoder == "lopa")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "begins with a start event"),
        ("nonsense", "line 1: not a trace event"),
        ('{"event": "start", "t": 0, "v": 9}', "trace version 9"),
        ('{"event": "start", "t": 0, "v": 1}', "lacks or garbles a field"),
    ],
)
def test_bad_traces(cli: Cli, tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    done = cli("view", path)
    assert done.code == 2 and sentence in done.err and done.err.count("\n") == 1


def test_missing_trace_and_bad_speed(cli: Cli, tmp_path: Path) -> None:
    assert "Cannot read the trace" in cli("view", tmp_path / "none").err
    assert "--speed must be above 0" in cli("view", tmp_path / "none", "--speed", 0).err


def test_a_trace_that_was_cut_off(cli: Cli, trace: Path) -> None:
    lines = trace.read_text().splitlines()
    trace.write_text("\n".join(lines[:3]) + "\n")
    done = cli("view", trace)
    assert done.code == 0 and "NFE 1 of 1" in done.out
    trace.write_text(lines[0] + "\n")
    assert cli("view", trace).code == 0
