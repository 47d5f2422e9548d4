"""`ripple eval` from the outside: one JSON object, a table, a comparison, one sentence for every mistake."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ripple.cli import main
from ripple.eval.results import read_results

COMMON = ("--task", "words", "--device", "cpu", "--length", "8", "--limit", "4")


def evaluate(checkpoint: Path, out: Path, *more: str) -> int:
    return main(["eval", *COMMON, "--model", str(checkpoint), "--out", str(out), *more])


def test_round_trip_with_json(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.jsonl"
    assert evaluate(checkpoint, out, "--decoder", "rps", "--lam", "0.2", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    items = [line for line in read_results(out) if line["kind"] == "item"]
    assert (told["n"], told["out"], told["decoder"]) == (4, str(out), "rps(lam=0.2)") and len(items) == 4
    assert all(line["fields"]["lam"] == 0.2 and line["model"] == "llada" for line in items)
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
    found = json.loads(capsys.readouterr().out)
    assert found["n"] == 4 and found["nfe_a"] == 8 >= found["nfe_b"] == found["b"]["nfe"]
    assert found["difference"] == pytest.approx(found["accuracy_b"] - found["accuracy_a"])


def test_json_needs_no_rich(checkpoint: Path, tmp_path: Path) -> None:
    words = ["eval", *COMMON, "--model", str(checkpoint), "--out", str(tmp_path / "r.jsonl"), "--json"]
    code = f"import sys; sys.modules['rich'] = None\nfrom ripple.cli import main\nsys.exit(main({words!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)["n"] == 4, done.stderr


@pytest.mark.parametrize(
    "argv, sentence",
    [
        (("--out", "r.jsonl"), "Give --task, or two result files with --compare."),
        (("--task", "words"), "Give --out, or two"),
        (("--task", "wrods", "--out", "r.jsonl"), "Did you mean 'words'?"),
        (("--task", "words", "--out", "r.jsonl", "--limit", "0"), "--limit must be at least 1, got 0."),
        (("--compare", "nowhere.jsonl", "b"), "Cannot read the results nowhere.jsonl: No such file"),
        (("--compare", "a", "b", "--task", "words"), "takes neither --task nor --out"),
    ],
)
def test_mistakes_are_one_sentence(
    argv: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["eval", *argv, "--json"]) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1


def test_the_harness_is_an_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["lm-eval", "--model", "ripple", "--tasks", "gsm8k"]) == 2
    assert capsys.readouterr().err == (
        "ripple: ripple lm-eval needs lm-evaluation-harness: pip install 'ripple-dllm[lm-eval]'.\n"
    )
