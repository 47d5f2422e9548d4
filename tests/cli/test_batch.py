"""`ripple batch` from the outside: one JSON object, one sentence for every mistake, nothing left behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

ROWS = '{"id": "a", "prompt": "1 + 1 ="}\n{"id": "b", "messages": []}\n'


@pytest.fixture
def batch(cli: Cli, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    Path("p.jsonl").write_text(ROWS)
    Path("twice.jsonl").write_text(ROWS.replace('"b"', '"a"'))
    Path("file").write_text("")
    return lambda *argv: cli("batch", "--model", checkpoint, "--device", "cpu", "--length", 8, *argv)


def test_a_job_with_json(batch: Cli) -> None:
    done = batch("--input", "p.jsonl", "--output", "new/out", "--json")
    assert done.code == 0 and json.loads(done.out) == {
        "rows": 2, "errors": 1, "results": "new/out/results.jsonl",
    }  # fmt: skip
    again = batch("--input", "p.jsonl", "--output", "new/out")
    assert (again.code, again.out) == (0, "2 rows, 1 of them with an error, in new/out/results.jsonl\n")
    assert Path("new/out/job.json").exists() and str(Path.cwd()) not in Path("new/out/job.json").read_text()


@pytest.mark.parametrize(
    "argv, sentence",
    [
        (("--output", "out"), "Give --input."),
        (("--input", "p.jsonl"), "Give --output."),
        (("--input", "p.jsonl", "--output", "out", "--batch", "0"), "--batch must be at least 1, got 0."),
        (("--input", "p.jsonl", "--output", "out", "--format", "parqet"), "Did you mean 'parquet'?"),
        (("--input", "p.jsonl", "--output", "file"), "Cannot write the output folder file"),
        (("--input", "p.jsonl", "--output", "out", "--temperature", "-1"), "temperature must be at least 0"),
        (("--input", "p.jsonl", "--output", "out", "--model", "tiny-lada"), "Did you mean 'tiny-llada'?"),
        (("--input", "twice.jsonl", "--output", "out"), "line 2: the id 'a' is that of line 1, too."),
        (
            ("--input", "p.jsonl", "--output", "out", "--workers", "0"),
            "--workers must be a number, or MIN:MAX",
        ),
        (("--input", "p.jsonl", "--output", "out", "--workers", "3:2"), "with 1 <= MIN <= MAX, got '3:2'."),
        (
            ("--input", "p.jsonl", "--output", "out", "--gpus-per-worker", "1.5"),
            "a share of a GPU or a whole",
        ),
        (("--input", "none.jsonl", "--output", "out"), "Cannot read the prompts none.jsonl"),
    ],
)
def test_mistakes_are_one_sentence_before_any_work(batch: Cli, argv: tuple[str, ...], sentence: str) -> None:
    done = batch(*argv)
    assert done.code == 2 and sentence in done.err and done.err.count("\n") == 1
    assert not Path("out").exists()


def test_workers_need_ray_and_that_is_said_before_any_work(
    batch: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for words in (("--ray",), ("--workers", "2"), ("--address", "auto")):
        done = batch("--input", "p.jsonl", "--output", "out", *words)
        assert done.code == 2 and "pip install 'ripple-dllm[ray]'" in done.err and not Path("out").exists()


def test_a_job_that_cannot_start_leaves_nothing(batch: Cli) -> None:
    done = batch("--input", "p.jsonl", "--output", "out", "--device", "cuda:99")
    assert done.code == 2 and not Path("out").exists()
