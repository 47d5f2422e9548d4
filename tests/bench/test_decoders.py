"""`ripple bench decoders` on the real tasks: every setting a line, a killed run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from ripple.analysis.lines import read_lines
from ripple.bench import grid
from ripple.bench.decoders import measure
from ripple.errors import RippleError
from ripple.models.random import write_random_checkpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("bench") / "dream-like"
    return str(write_random_checkpoint(folder, "dream", vocab_size=320, d_model=32, n_heads=2, d_ff=32))


def test_every_decoder_gets_a_line_and_a_cut_run_goes_on(model: str, tmp_path: Path) -> None:
    out = tmp_path / "decoders.jsonl"
    how = {"models": model, "device": "cpu", "families": "words", "items": 3, "length": 32}
    assert measure(out, **how)["new_lines"] == len(grid.main_settings(model)) == 10
    lines = read_lines(out)
    assert {line["method"] for line in lines} == {s.name for s in grid.main_settings(model)}
    for line in lines:
        assert line["nfe"] == line["nfe_normal"] + line["nfe_lookahead"] and line["rows"] >= line["nfe"]
        assert bin(int(line["right"], 16)).count("1") == round(line["accuracy"] * line["n"])
        assert line["interval"][0] <= line["accuracy"] <= line["interval"][1]
        assert (line["search"] is not None) == (line["method"] == "rps")
    whole = out.read_bytes()
    out.write_bytes(whole[: int(len(whole) * 0.55)])  # killed while a line was written
    n_kept = len(read_lines(out))
    assert measure(out, **how)["new_lines"] == 10 - n_kept
    again = read_lines(out)
    assert [(row["setting"], row["nfe"], row["right"]) for row in again] == [
        (row["setting"], row["nfe"], row["right"]) for row in lines
    ]
    assert measure(out, **how)["new_lines"] == 0
    assert "| rps" in out.with_suffix(".md").read_text() and "<svg" in out.with_suffix(".svg").read_text()


def test_several_processes_give_the_same_lines(model: str, tmp_path: Path) -> None:
    how = {"models": model, "device": "cpu", "families": "words,algebra", "items": 2, "length": 32}
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    measure(one, **how)
    measure(two, workers=2, **how)

    def facts(path: Path) -> list[tuple[str, str, float, str]]:
        return sorted((r["family"], r["setting"], r["nfe"], r["right"]) for r in read_lines(path))

    assert facts(one) == facts(two)


def test_unknown_families_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RippleError, match="Did you mean 'words'"):
        measure(tmp_path / "x.jsonl", models="tiny-dream", families="wrods", device="cpu")


def test_the_sweeps_are_the_papers() -> None:
    settings = [s.describe() for s in grid.all_settings("tiny-llada")]
    assert len(settings) == len(set(settings))
    assert (
        sum(s.startswith("klass") for s in settings) == 4 and sum(s.startswith("wino") for s in settings) == 4
    )
    assert sum(s.startswith("eb") for s in settings) == 3
