"""`ripple demo`: who solves what, and lanes that fit the terminal."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import ripple
from ripple.cli.live import Lane, draw_race, photo_finish
from ripple.view import frames
from tests.cli.conftest import Cli


def test_demo_prints_a_table_and_what_is_next(cli: Cli, tmp_path: Path) -> None:
    svg = tmp_path / "demo.svg"
    done = cli("demo", "--length", 8, "--svg", svg)
    assert done.code == 0 and "Where to go next" in done.out
    for name in ("default", "confidence", "rps", "glide", "words", "algebra", "functions", "programs"):
        assert name in done.out
    assert "as the first one is done" in done.out and svg.read_text().startswith("<svg")
    assert [path.name for path in tmp_path.iterdir()] == ["demo.svg"]


def test_demo_for_machines(cli: Cli) -> None:
    done = cli("demo", "--length", 16, "--families", "words,algebra", "--json")
    scores = json.loads(done.out)["decoders"]
    assert done.out.count("\n") == 1
    assert scores[0]["nfe"] == 16 and scores[0]["problems"] == 2
    assert scores[3]["nfe_speedup"] > scores[1]["nfe_speedup"] > 1


def test_names_mean_the_presets_of_the_models_family(cli: Cli) -> None:
    done = cli("demo", "--length", 16, "--families", "words", "--model", "tiny-dream", "--json")
    assert [one["decoder"] for one in json.loads(done.out)["decoders"]][-2] == "rps:tau_pivot=0.95"


def test_quiet_replays_nothing_on_a_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    done = cli("demo", "--quiet", "--length", 16, "--families", "algebra")
    assert done.code == 0 and "\x1b[" in done.out and "solved" in done.out and "Where to go next" in done.out
    assert "replayed" not in done.out


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (
            ["--svg", "/nowhere/x.svg"],
            "Cannot write the picture /nowhere/x.svg: there is no folder /nowhere.",
        ),
        (["--svg", "x.svg", "--json"], "give one of them"),
        (["--families", "words,algebre"], "Did you mean 'algebra'?"),
        (["--per-family", "0"], "--per-family must be at least 1, got 0."),
        (["--model", "some/model"], "allow it with allow_code=True (--allow-code)"),
        (
            ["--length", "0", "--families", "words"],
            "length must be a whole number of at least 1 or none, got 0.",
        ),
        (["--length", "x"], "invalid int value: 'x'"),
    ],
)
def test_bad_input_is_told_before_a_model_is_loaded(
    cli: Cli, argv: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ripple.engine.load.load_model", None)
    done = cli("demo", *argv)
    assert done.code == 2 and sentence in done.err and done.err.count("\n") == 1 and done.out == ""


@pytest.fixture(scope="module")
def lanes(engines: dict[str, ripple.Engine]) -> list[Lane]:
    """Long responses without a tokenizer, whose pieces are wide."""
    options = {"length": 128, "trace": True}
    return [
        (name, frames(engines["llada"].generate([1, 2, 3], decoder=name, **options).trace))
        for name in ("default", "confidence", "rps", "glide")
    ]


@pytest.mark.parametrize("height", [24, 40, 12])
def test_all_four_lanes_are_visible_at_80_columns(lanes: list[Lane], height: int) -> None:
    last = max(states[-1].t for _, states in lanes)
    for clock in (0.0, last / 50, last / 4, last):
        out = Console(file=StringIO(), width=80, height=height)
        out.print(draw_race(out, lanes, clock, "replayed", height))
        lines = out.file.getvalue().splitlines()
        assert len(lines) < height and max(map(len, lines)) <= 80
        for name, _ in lanes:
            assert sum(line.startswith(f"{name}: ") for line in lines) == 1
    assert sum(": done, NFE " in line for line in lines) == 4
    out = Console(file=StringIO(), width=80)
    out.print(photo_finish(out, lanes))
    assert ": done, NFE " in out.file.getvalue() and "…" not in out.file.getvalue()
