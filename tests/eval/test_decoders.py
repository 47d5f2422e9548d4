"""`ripple bench decoders` on the real tasks: every setting a line, resuming, tables and a figure."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import ripple
import ripple.eval.sweep as sweep
from ripple.errors import RippleError
from ripple.eval.decoders import Decoders
from ripple.eval.lines import read_results
from ripple.eval.settings import every_decoder, every_setting
from ripple.files import read_lines, write_lines
from ripple.models.random_checkpoint import write_random_checkpoint
from tests.conftest import with_filter

HOW: dict[str, Any] = {"device": "cpu", "tasks": "words", "items": 3, "length": 32}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("bench") / "small"  # its name says nothing of its family
    return str(write_random_checkpoint(folder, "dream", vocab_size=320, d_model=32, n_heads=2, d_ff=32))


@pytest.fixture(scope="module")
def calm(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("calm") / "decoders.jsonl"
    told = Decoders(out=out, models=model, **HOW).run()
    assert told["new_lines"] == len(every_decoder("dream", has_filter=False)) == 11
    return out


def facts(path: Path) -> list[tuple[Any, ...]]:
    names = ("task", "setting", "nfe", "right", "nfe_items", "search", "bound", "run")
    return sorted(tuple(str(line.get(name)) for name in names) for line in read_lines(path))


def test_every_decoder_gets_a_line_that_hangs_together(calm: Path) -> None:
    lines = read_results(calm)
    assert {line["decoder"] for line in lines} == {s.name for s in every_decoder("dream", has_filter=False)}
    for line in lines:
        assert (line["kind"], line["model"], line["model_family"]) == ("summary", "small", "dream")
        assert line["nfe"] == line["nfe_normal"] + line["nfe_lookahead"] <= line["canvases"]
        assert sum(line["nfe_items"]) == 3 * line["nfe"]
        assert line["interval"][0] <= line["accuracy"] <= line["interval"][1]
        assert ("search" in line) == ("bound" in line) == (line["decoder"] == "rps")
    assert [line["setting"] for line in lines if line["decoder"] == "rps"] == ["rps:tau_pivot=0.95"]


def test_a_cut_run_is_resumed_and_a_whole_one_adds_nothing(model: str, calm: Path, tmp_path: Path) -> None:
    out, whole = tmp_path / "decoders.jsonl", calm.read_bytes()
    out.write_bytes(whole[: int(len(whole) * 0.55)])  # killed while a line was written
    n_kept = len(read_lines(out))
    run = Decoders(out=out, models=model, **HOW)
    assert 0 < n_kept < 11 and run.run()["new_lines"] == 11 - n_kept
    assert facts(out) == facts(calm) and run.run()["new_lines"] == 0


def test_the_end_names_the_files_and_shows_the_means(model: str, calm: Path) -> None:
    pytest.importorskip("matplotlib")
    told = Decoders(out=calm, models=model, **HOW).run()
    files = [Path(name) for name in told["files"].split(", ")]
    assert files == [calm, calm.with_suffix(".md"), calm.with_suffix(".svg")]
    assert "| rps:tau_pivot=0.95" in files[1].read_text() and "<svg" in files[2].read_text()
    row = told["means"]["small, cache none, rps:tau_pivot=0.95"]
    assert row["tasks"] == 1 and 0 < row["NFE"] < told["means"]["small, cache none, default"]["NFE"] == 32


def test_without_matplotlib_the_tables_are_written_and_the_rest_is_named(
    model: str, calm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "decoders.jsonl"
    out.write_bytes(calm.read_bytes())
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    told = Decoders(out=out, models=model, **HOW).run()
    assert (
        told["not drawn"]
        == f"{tmp_path}/decoders.svg, which needs matplotlib: pip install 'ripple-dllm[plots]'"
    )
    assert out.with_suffix(".md").exists() and not out.with_suffix(".svg").exists()


def test_several_processes_give_the_same_lines(model: str, tmp_path: Path) -> None:
    how = HOW | {"models": model, "tasks": "words,algebra", "items": 2, "decoders": "confidence,rps"}
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    Decoders(out=one, **how).run()
    Decoders(out=two, workers=2, **how).run()
    assert facts(one) == facts(two) and len(facts(one)) == 4


def test_a_setting_that_fails_costs_no_other(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> object:
        raise ValueError("out of ideas")

    monkeypatch.setattr(ripple.Factor, "pick", broken)
    out = tmp_path / "r.jsonl"
    run = Decoders(out=out, models=model, **HOW | {"decoders": "factor,frechet"})
    with pytest.raises(RippleError, match=r"small on words, cache none, factor: .*out of ideas.*what was"):
        run.run()
    assert "out of ideas" in capsys.readouterr().err
    assert [line["setting"] for line in read_lines(out)] == ["frechet"] and out.with_suffix(".md").exists()


def test_other_weights_under_the_same_name_are_refused(model: str, calm: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    write_lines(out, read_lines(calm))
    shape = {"vocab_size": 320, "d_model": 32, "n_heads": 2, "d_ff": 32}
    other = str(write_random_checkpoint(tmp_path / "small", "dream", seed=9, **shape))
    with pytest.raises(RippleError, match="was made with other weights of small"):
        Decoders(out=out, models=other, **HOW).run()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"tasks": "wrods"}, "Unknown task 'wrods'. Did you mean 'words'"),
        ({"decoders": "rsp"}, "Unknown decoder 'rsp'. Did you mean 'rps'"),
        ({"caches": "daul"}, "Unknown cache 'daul'. Did you mean 'dual'"),
        ({"models": "tiny-lada"}, "Did you mean 'tiny-llada'"),
        ({"items": 0}, "items must be a whole number of at least 1 or none, got 0"),
        ({"items": -1}, "items must be"),
        ({"workers": 0}, "workers must be a whole number of at least 1, got 0"),
        ({"length": 0}, "length must be"),
        ({"tasks": ""}, "Name at least one task"),
        ({"tasks": "functions"}, "functions is scored by running code"),
        ({"out": Path(".")}, "it is a folder"),
    ],
)
def test_bad_input_is_refused_before_work(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    given: dict[str, Any], sentence: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep, "load", lambda *_, **__: pytest.fail("a model was loaded"))
    with pytest.raises(RippleError) as refused:
        Decoders(**({"out": Path("r.jsonl"), "models": model} | HOW | given)).run()
    assert sentence in str(refused.value) and "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir()) and capsys.readouterr().err == ""


def test_settings_go_by_the_family_and_the_filter_by_the_folder(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    llada, dream = (every_decoder(family) for family in ("llada", "dream"))
    assert llada[-2] == ripple.decoder("rps/llada") and dream[-2] == ripple.decoder("rps/dream")
    assert [s.name for s in llada] == [s.name for s in dream]
    out = tmp_path / "r.jsonl"
    how = HOW | {"decoders": "learn2pd", "models": str(with_filter(folders["llada"]))}
    with pytest.raises(
        RippleError, match="no tokenizer"
    ):  # known by its filter, and these folders have no text
        Decoders(out=out, **how).run()


def test_the_sweeps_are_the_papers() -> None:
    settings = [s.describe() for s in every_setting("llada")]
    assert len(settings) == len(set(settings))
    for name, n in (("klass", 4), ("wino", 4), ("eb", 3), ("lopa", 4), ("rps", 5), ("learn2pd", 1)):
        assert sum(s.partition(":")[0] == name for s in settings) == n
