"""Conversion of result files of schema version 1: lossless, or refused.

`version1.jsonl` are committed lines as they were, `version1-eval.jsonl` is a file of `ripple eval` of then.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ripple.errors import RippleError
from ripple.eval.lines import read_results
from ripple.eval.results import read_run, summarize
from ripple.files import read_lines
from tools.convert_results import convert, main, new_setting, old_setting

HERE = Path(__file__).parent
OLD, OLD_EVAL = HERE / "version1.jsonl", HERE / "version1-eval.jsonl"


@pytest.mark.parametrize(
    ("model", "old", "new"),
    [
        ("tiny-dream", "rps(tau_pivot=0.95, standard=frechet)", "rps:tau_pivot=0.95,standard=frechet"),
        (
            "m",
            "rps(standard=klass(tau=0.8, stock_dream=True))",
            "rps:standard=(klass:tau=0.8,match_klass_dream=True)",
        ),
        ("tiny-dream", "learn2pd(filter=tiny-dream)", "learn2pd"),
        ("tiny-dream", "learn2pd(filter=tiny-dream, threshold=0.9)", "learn2pd:threshold=0.9"),
        ("tiny-llada", "learn2pd", "learn2pd"),
        ("m", "factor(f=0.5, stock_tail=True)", "factor:f=0.5,match_fast_dllm_tail=True"),
        ("m", "default", "default"),
    ],
)  # fmt: skip
def test_settings_are_written_as_one_types_them_and_can_be_turned_back(
    model: str, old: str, new: str
) -> None:
    assert new_setting(old, model) == new and old_setting(new, model) == old


def test_every_line_keeps_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    shutil.copy(OLD, path)
    assert main([str(path)]) == 0
    old, new = read_lines(OLD), read_results(path)
    assert [line["kind"] for line in new] == ["summary"] * 7 + ["analysis"] * 6
    for was, now in zip(old[:7], new[:7], strict=True):
        assert (now["task"], now["decoder"], now["canvases"]) == (was["family"], was["method"], was["rows"])
        for name in ("n", "accuracy", "right", "nfe", "nfe_normal", "new_tokens", "seconds", "tps", "batch"):
            assert now[name] == was[name]
        assert now["weights"] is None and now["version"] is None  # nobody wrote them down
    assert {line["model"]: line["model_family"] for line in new} == {
        "tiny-dream": "dream", "tiny-llada": "llada"
    }  # fmt: skip
    assert [line["n_right"] for line in new[-2:]] == [line["n_right"] for line in old[-2:]]
    assert main([str(path)]) == 0 and read_results(path) == new, "a second time there is nothing to do"


def test_a_file_of_eval_is_converted_too(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    shutil.copy(OLD_EVAL, path)
    assert main([str(path)]) == 0
    items = [line for line in read_lines(OLD_EVAL) if line["kind"] == "item"]
    run = read_run(str(path))
    summary = summarize(run)
    assert summary.n == 2 and summary.nfe == sum(item["nfe"] for item in items) / 2
    assert summary.seconds == sum(item["wall_seconds"] for item in items)
    assert (run.facts["setting"], run.facts["model_family"]) == ("rps:lam=0.2", "llada")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"novel": 1}, "line 1: novel would change; nothing was written"),  # a field that would be lost
        ({"setting": "learn2pd(threshold=0.5)"}, "'learn2pd:threshold=0.5' does not mean the fields"),
        ({"accuracy": 0.5}, "has an accuracy that its verdicts do not have"),
        ({"bench": "step"}, "line 1: not a line of schema version 1"),
        ({"model": "no-such-model"}, 'no-such-model" is neither an existing folder'),
    ],
)
def test_what_cannot_be_proved_is_not_written(
    tmp_path: Path, change: dict[str, object], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(read_lines(OLD)[0] | change) + "\n")
    before = path.read_bytes()
    assert main([str(path)]) == 2 and path.read_bytes() == before
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1


def test_drawings_that_would_change_are_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in read_lines(OLD)[:2]))
    path.with_suffix(".md").write_text("# Decoders\n\nsomething else\n")
    assert main(["--check", str(path)]) == 2
    assert "r.md would change in more than its labels" in capsys.readouterr().err


def test_files_of_two_versions_are_refused() -> None:
    mixed = [*read_lines(OLD)[:1], {"kind": "run", "v": 2}]
    with pytest.raises(RippleError, match="line 2: not a line of schema version 1"):
        convert(mixed, "mixed")
