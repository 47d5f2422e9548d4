"""The command on a small random checkpoint: lines for every experiment, and a killed run goes on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

import ripple
import ripple.eval.sweep as sweep
from ripple.canvas import Canvas
from ripple.cli import main
from ripple.decoders.base import Conversation
from ripple.errors import RippleError
from ripple.eval.lines import read_results
from ripple.files import Line, append_line, read_lines
from ripple.models.random_checkpoint import write_random_checkpoint
from tests.eval.forks import fork, is_alive, wait

ONLY = ("--only", "r,breakdown,bound,oracle")
HOW = ("--device", "cpu", "--limit", "2", "--length", "64", "--tasks", "words", "--timed", "1")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("paper") / "small"  # its name says nothing of its family
    shape = {"vocab_size": 320, "d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 32}
    return str(write_random_checkpoint(folder, "dream", **shape))


def paper(model: str, out: Path, *more: str) -> int:
    return main(["paper", "--model", model, "--out", str(out), *HOW, *more])


def facts(lines: list[Line]) -> list[tuple[object, ...]]:
    """What a line says, clocks aside, in an order that does not depend on who was first."""
    names = (
        "analysis", "model", "task", "cache", "setting", "length", "n", "nfe", "right", "bound", "points"
    )  # fmt: skip
    return sorted((tuple(str(line.get(name)) for name in names) for line in lines), key=str)


@pytest.fixture(scope="module")
def calm(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("calm")
    assert paper(model, out, *ONLY) == 0
    return out


def test_a_line_serves_every_experiment_that_wants_it(calm: Path) -> None:
    lines = read_results(calm / "lines.jsonl")
    settings = [line for line in lines if line["kind"] == "summary"]
    assert [line.get("analysis") for line in lines].count("timing") == 1
    assert len(settings) == 4 and {line["model"] for line in lines} == {"small"}
    [main_line] = [line for line in settings if line["setting"] == "rps:tau_pivot=0.95"]
    assert sum(count for *_, count in main_line["bound"]) > 0
    report = (calm / "report.md").read_text()
    for title in ("Reachability ratio r", "Forward-pass breakdown", "Proposition 1"):
        assert title in report
    [oracle] = [line for line in lines if line.get("analysis") == "oracle"]
    assert oracle["n"] == 2 and (oracle["points"] == []) == (oracle["solved"] == 0)


def test_a_run_cut_while_it_wrote_a_line_goes_on(model: str, calm: Path, tmp_path: Path) -> None:
    whole = (calm / "lines.jsonl").read_bytes()
    out = tmp_path / "lines.jsonl"
    out.write_bytes(whole[: int(len(whole) * 0.7)])
    assert 0 < len(read_lines(out)) < len(read_lines(calm / "lines.jsonl"))
    assert paper(model, tmp_path, *ONLY) == 0
    assert facts(read_lines(out)) == facts(read_lines(calm / "lines.jsonl"))


def test_a_killed_run_goes_on_in_two_processes(
    model: str, calm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pid = fork(lambda: paper(model, tmp_path, *ONLY))
    out, deadline = tmp_path / "lines.jsonl", time.monotonic() + 60
    while not (out.exists() and out.stat().st_size):
        assert is_alive(pid) and time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    assert wait(pid) == -signal.SIGKILL
    whole = out.read_bytes()
    out.write_bytes(whole + whole[: len(whole) // 2].rstrip(b"\n"))  # and half a line more
    n_kept = len(read_lines(out))
    assert 0 < n_kept < 6
    assert paper(model, tmp_path, *ONLY, "--workers", "2") == 0, "and with two processes"
    assert facts(read_lines(out)) == facts(read_lines(calm / "lines.jsonl"))
    capsys.readouterr()
    assert paper(model, tmp_path, *ONLY, "--plan") == 0
    assert "To do: 0 setting lines in 0 pieces, 0 oracle analyses, 0 timings" in capsys.readouterr().out


def test_lines_of_the_decoder_bench_are_taken_over(model: str, calm: Path, tmp_path: Path) -> None:
    other = tmp_path / "decoders.jsonl"
    settings = [line for line in read_lines(calm / "lines.jsonl") if line["kind"] == "summary"]
    for line in settings:
        is_main = line["setting"] == "rps:tau_pivot=0.95"
        append_line(other, {key: value for key, value in line.items() if key != "bound" or not is_main})
    assert paper(model, tmp_path / "out", "--only", "r", "--reuse", str(other)) == 0
    taken = read_lines(tmp_path / "out" / "lines.jsonl")
    assert facts(taken) == facts(settings), "the line without its bound was run again, the others were taken"
    same = [line for line in taken if line in settings]
    assert len(same) == len(settings) - 1


def test_a_plan_says_what_would_run_and_runs_nothing(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert paper(model, tmp_path, "--plan") == 0
    told = capsys.readouterr().out
    assert "lambda" in told and "setting lines" in told and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "mian"], "Did you mean 'main'"),
        (["--tasks", "wrods"], "Did you mean 'words'"),
        (["--tasks", "gsm8k"], "--data"),
        (["--limit", "0"], "at least 1 item"),
        (["--length", "33"], "even number"),
        (["--workers", "0"], "--workers must be"),
        (["--timed", "-1"], "--timed must be"),
        (["--reuse", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--reuse", "nowhere.jsonl", "--plan"], "nowhere.jsonl"),
        (["--tasks", "functions"], "functions is scored by running code"),
        (["--model", "tiny-lada"], "Did you mean 'tiny-llada'"),
        (["--out", "/dev/null/x"], "/dev/null is not a folder"),
        (["--draw"], "run `ripple paper` first"),
    ],
)
def test_bad_input_is_one_clear_sentence_and_leaves_nothing_behind(
    model: str, tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(sweep, "load", lambda *_, **__: pytest.fail("a model was loaded"))
    assert paper(model, tmp_path / "new" / "report", *words) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert said in told[-1] and len(told) == 1 and not list(tmp_path.iterdir())


def test_a_run_that_fails_leaves_no_empty_folder(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> object:
        raise RippleError("The disk is upside down.")

    monkeypatch.setattr(sweep, "load", broken)
    sweep.open_engine.cache_clear()
    assert paper(model, tmp_path / "new" / "report", "--only", "r") == 2
    assert "The disk is upside down." in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_setting_that_fails_is_named_and_the_rest_is_drawn(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    decode = ripple.RPS.decode

    def fussy(self: ripple.RPS, canvas: Canvas) -> Conversation:
        if self.r == 0.3:
            raise ValueError("not this ratio")
        yield from decode(self, canvas)

    monkeypatch.setattr(ripple.RPS, "decode", fussy)
    assert paper(model, tmp_path, "--only", "r") == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "r=0.3: Item words/test/" in said and "not this ratio" in said and "lines.jsonl has what" in said
    assert len(read_results(tmp_path / "lines.jsonl")) == 3
    assert "Reachability ratio r" in (tmp_path / "report.md").read_text()
