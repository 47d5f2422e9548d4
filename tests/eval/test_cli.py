"""`ripple eval` from the outside: one JSON object, a table, a comparison, one sentence for every mistake."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from ripple.cli import main
from ripple.eval.lines import read_results

COMMON = ("--task", "words", "--device", "cpu", "--length", "8", "--limit", "4")


def evaluate(checkpoint: Path, out: Path, *more: str) -> int:
    return main(["eval", *COMMON, "--model", str(checkpoint), "--out", str(out), *more])


def test_round_trip_with_json(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.jsonl"
    assert evaluate(checkpoint, out, "--decoder", "rps", "--lam", "0.2", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    run, _, *items = read_results(out)
    assert (told["n"], told["out"], told["setting"]) == (4, str(out), "rps:lam=0.2") and len(items) == 4
    assert run["fields"]["lam"] == 0.2 and run["model"] == "llada"
    assert str(tmp_path) not in out.read_text()  # no machine's paths in result files
    assert evaluate(checkpoint, out, "--decoder", "rps", "--lam", "0.2", "--json") == 0
    assert json.loads(capsys.readouterr().out) == told


def test_tables_and_comparison(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    assert evaluate(checkpoint, a, "--decoder", "default") == 0
    assert "accuracy" in capsys.readouterr().out
    assert evaluate(checkpoint, b, "--decoder", "confidence", "--json") == 0
    capsys.readouterr()
    assert main(["eval", "--compare", str(a), str(b)]) == 0
    assert "exact McNemar" in capsys.readouterr().out
    assert main(["eval", "--compare", str(a), str(b), "--json"]) == 0
    both = json.loads(capsys.readouterr().out)
    assert both["n"] == 4 and both["nfe_a"] == 8 >= both["nfe_b"] == both["b"]["nfe"]
    assert both["difference"] == pytest.approx(both["accuracy_b"] - both["accuracy_a"])
    assert both["nfe_interval"][0] <= both["nfe_b"] - both["nfe_a"] <= both["nfe_interval"][1]


def test_json_needs_no_rich_and_a_table_without_it_is_refused_before_the_work(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in {"rich", "rich.console", *(name for name in sys.modules if name.startswith("rich."))}:
        monkeypatch.setitem(sys.modules, name, None)
    assert evaluate(checkpoint, tmp_path / "table.jsonl") == 1
    assert "the package rich" in capsys.readouterr().err and not (tmp_path / "table.jsonl").exists()
    assert evaluate(checkpoint, tmp_path / "r.jsonl", "--json") == 0
    assert json.loads(capsys.readouterr().out)["n"] == 4


def test_a_models_code_runs_with_permission(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r.jsonl"
    words = ["eval", *COMMON, "--task", "programs", "--model", str(checkpoint), "--out", str(out), "--json"]
    assert main(words) == 2 and not out.exists()
    assert capsys.readouterr().err.endswith("allow it with allow_code=True (--allow-code).\n")
    assert main([*words, "--allow-code"]) == 0
    assert json.loads(capsys.readouterr().out)["n"] == 4


def test_an_embedded_models_code_needs_no_permission(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    how = ["--task", "functions", "--device", "cpu", "--length", "8", "--limit", "1", "--json"]
    assert main(["eval", *how, "--model", "tiny-dream", "--out", str(tmp_path / "r.jsonl")]) == 0
    assert json.loads(capsys.readouterr().out)["n"] == 1


@pytest.mark.parametrize(
    "argv, sentence",
    [
        (("--out", "r.jsonl"), "Give --task, or two result files with --compare."),
        (("--task", "words"), "Give --out, or two"),
        (("--task", "wrods", "--out", "r.jsonl"), "Did you mean 'words'?"),
        (
            ("--task", "functions", "--model", "owner/name", "--out", "r.jsonl"),
            "functions is scored by running",
        ),
        (("--task", "words", "--out", "r.jsonl", "--limit", "0"), "--limit must be at least 1, got 0."),
        (("--task", "words", "--out", "."), "Cannot write the results .: it is a folder."),
        (("--task", "words", "--out", "old.jsonl"), "python tools/convert_results.py"),
        (("--task", "words", "--out", "r.jsonl", "--model", "tiny-lada"), "Did you mean 'tiny-llada'?"),
        (("--compare", "nowhere.jsonl", "b"), "Cannot read the results nowhere.jsonl: no such file"),
        (("--compare", "a", "b", "--task", "words"), "takes neither --task nor --out"),
    ],
)
def test_mistakes_are_one_sentence(
    argv: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("old.jsonl").write_text('{"bench": "decoders", "rows": 1}\n')
    assert main(["eval", *argv, "--json"]) == 2
    said = capsys.readouterr().err
    assert (
        sentence in said and said.count("\n") == 1 and [p.name for p in tmp_path.iterdir()] == ["old.jsonl"]
    )


def test_the_harness_is_an_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["lm-eval", "--model", "ripple", "--tasks", "gsm8k"]) == 2
    assert capsys.readouterr().err == (
        "ripple: ripple lm-eval needs lm-evaluation-harness: pip install 'ripple-dllm[lm-eval]'.\n"
    )
    assert main(["lm-eval", "--help"]) == 0
    assert "pip install 'ripple-dllm[lm-eval]'" in capsys.readouterr().out
