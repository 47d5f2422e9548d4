"""`ripple bench` and `ripple check`: options from declared fields, numbers as tables or as one JSON line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import ripple.bench
from ripple.check import paths
from ripple.cli import bench
from ripple.fields import fields_of, param
from ripple.measurement import Measurement
from tests.cli.conftest import Cli


@dataclass(frozen=True)
class Sample(Measurement):
    """Measure nothing, and say with which options."""

    name: ClassVar[str] = "sample"

    out: Path | None = param(None, "result lines")
    length: int = param(4, "response positions", within="[1, inf)")
    order: str = param("up", "which way", choices=("up", "down"))
    check: bool = param(True, "look twice")

    def run(self) -> dict[str, Any]:
        rows = {"rps[/b]": {"steps": self.length, "ms": 1.5}, "eb": {"steps": 3, "note": "x" * 90}}
        numbers = {"bench": self.name, "order": self.order, "check": self.check, "decoders": rows}
        return numbers | ({"files": str(self.out)} if self.out else {})


@pytest.fixture
def sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more measurement, registered as the others are."""
    monkeypatch.setitem(ripple.bench.MEASUREMENTS, "sample", f"{__name__}:Sample")


# -- listing -----------------------------------------------------------------------------------------------


def test_without_a_name_the_measurements_are_listed(cli: Cli) -> None:
    done, listed = cli("bench"), json.loads(cli("bench", "--json").out)["measurements"]
    assert done.code == 0 and list(listed) == list(bench.measurements())
    assert {"step", "replay", "decoders", "blame"} <= set(listed)
    for name, about in listed.items():
        assert f"\n  {name} " in done.out and about.endswith("."), name
        assert about.split()[-1] in done.out
    assert max(map(len, done.out.splitlines())) <= 80


@pytest.mark.parametrize("name", ["overhead", "load-memory", "packing", "step", "tiles", "decoders"])
def test_help_shows_the_options_of_that_measurement_only(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = cli("bench", name, "--help")
    fields = fields_of(bench.measurement_class(bench.measurements()[name]))
    assert done.code == 0 and f"usage: ripple bench {name} [options]" in done.out
    shown = {line.split()[0].rstrip(",") for line in done.out.splitlines() if line.startswith("  --")}
    assert shown == {"--json", *(field.option for field in fields.values())}
    assert all(field.about.split()[0] in done.out for field in fields.values())
    assert max(map(len, done.out.splitlines()[2:])) <= 100


def test_help_says_meaning_range_and_default(cli: Cli, sample: None) -> None:
    out = cli("bench", "sample", "--help").out
    assert "response positions; [1, inf) (default 4)" in out
    assert "which way; up | down (default up)" in out and "--no-check" in out


# -- running -----------------------------------------------------------------------------------------------


def test_options_come_from_text_and_numbers_go_to_tables(cli: Cli, sample: None, tmp_path: Path) -> None:
    out = tmp_path / "new" / "lines.jsonl"
    argv = ("bench", "sample", "--length", 7, "--order", "down", "--no-check", "--out", out)
    printed = json.loads(cli(*argv, "--json").out)
    assert (printed["decoders"]["rps[/b]"]["steps"], printed["order"], printed["check"]) == (7, "down", False)
    done = cli(*argv)
    assert done.code == 0 and "rps[/b]" in done.out and "down" in done.out
    assert "".join(done.out.split()).count("x") >= 90, "nothing is cut"
    assert done.out.endswith(f"written: {out}\n")
    assert "written:" not in cli("bench", "sample").out


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["sampel"], "Unknown measurement 'sampel'. Did you mean 'sample'?"),
        (["overhed"], "Did you mean 'overhead'?"),
        (["sample", "--length", "0"], "length must be a whole number of at least 1, got 0."),
        (["sample", "--length", "many"], "length must be a whole number of at least 1, got 'many'."),
        (["sample", "--order", "upp"], "order must be one of up, down (did you mean 'up'?), got 'upp'."),
        (["sample", "--out", "/dev/null"], "it is not a regular file"),
        (["sample", "--out", "/dev/null/x"], "/dev/null is not a folder"),
        (["sample", "--oder", "up"], "Unknown option '--oder'. Did you mean '--order'?"),
        (["sample", "--lenght", "3"], "Did you mean '--length'?"),
        (["sample", "--shapes", "llada-8b"], "Unknown option '--shapes'."),
        (["sample", "other"], "Unexpected argument 'other'. See ripple bench sample --help."),
        (["load-memory", "--folder", "/nowhere"], "Model folder /nowhere does not exist."),
    ],
)
def test_bad_input_is_one_sentence(cli: Cli, sample: None, argv: list[str], sentence: str) -> None:
    done = cli("bench", *argv)
    assert done.code == 2 and sentence in done.err and done.err.count("\n") == 1 and done.out == ""


def test_out_may_not_be_a_folder(cli: Cli, sample: None, tmp_path: Path) -> None:
    assert "it is a folder" in cli("bench", "sample", "--out", tmp_path).err


@pytest.mark.slow
def test_load_memory_really_runs(cli: Cli, checkpoint: Path) -> None:
    assert json.loads(cli("bench", "load-memory", "--folder", checkpoint, "--json").out)["ratio"] > 0


# -- check -------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same pairs of paths on the same machine, on a smaller network."""
    sizes = {"vocab_size": 64, "d_model": 32, "n_layers": 1, "n_heads": 4, "d_ff": 32, "seed": 1}
    monkeypatch.setattr(paths, "SIZES", sizes)
    monkeypatch.setattr(paths, "MODELS", (paths.CheckedModel("dream", 2, ("none", "dual")),))
    monkeypatch.setattr(paths, "DECODERS", ("confidence",))


def test_check_prints_the_pairs_and_the_largest_difference(cli: Cli, small: None) -> None:
    done = cli("check", "--device", "cpu")
    assert done.code == 0 and "dream bfloat16" in done.out and "the largest difference is" in done.out
    assert "pairs agree" in done.out


def test_check_fails_with_one_sentence(cli: Cli, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "TOLERANCE", {"float32": -1.0})
    done = cli("check", "--device", "cpu", "--json")
    printed = json.loads(done.out)
    assert done.code == 1 and printed["equal"] is False and "differ by" in printed["difference"]
    done = cli("check", "--device", "cpu")
    assert done.code == 1 and done.out.count("\n") == 1 and "differ by" in done.out


def test_check_of_an_unknown_device_is_bad_input(cli: Cli) -> None:
    assert cli("check", "--device", "gpu9").code == 2
