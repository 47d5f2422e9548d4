"""Published benchmarks through the runner, on rows of our own in the publishers' formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ripple
from ripple.analysis.lines import read_lines
from ripple.benchmarks import BENCHMARKS
from ripple.cli import main
from ripple.eval import find_task, task_facts
from ripple.tasks import TASKS

ROWS = [
    {
        "question": f"Ann has {i} pens and buys {i + 2}. How many?",
        "answer": f"{i} + {i + 2} = {2 * i + 2}\n#### {2 * i + 2}",
    }
    for i in range(1, 9)
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "gsm8k"
    folder.mkdir(parents=True)
    for name, rows in (("test.jsonl", ROWS[:3]), ("train.jsonl", ROWS[3:])):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "data"


def test_every_name_is_found_and_others_name_the_nearest(data: Path) -> None:
    assert set(TASKS).isdisjoint(BENCHMARKS)
    assert find_task("words") is TASKS["words"]
    assert len(find_task("gsm8k", data, shots=1).test_items()) == 3
    for name, options, sentence in (
        ("wordz", {}, "Did you mean 'words'"),
        ("gsm8k", {}, "say where with --data"),
        ("words", {"data": data}, "takes neither data nor shots"),
        ("gsm8k", {"data": data / "nowhere"}, "nowhere"),
    ):
        with pytest.raises(ripple.RippleError, match=sentence):
            find_task(name, **options)  # type: ignore[arg-type]


def test_a_benchmark_is_evaluated_with_its_checksums_in_every_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    how = ["--length", "16", "--block", "16", "--decoder", "confidence", "--out", str(out), "--json"]
    assert main(["eval", "--task", "gsm8k", "--data", str(data), "--shots", "1", *how]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["n"] == 3 and "sha256" in captured.err
    items = [line for line in read_lines(out) if line["kind"] == "item"]
    assert [line["shots"] for line in items] == [1, 1, 1]
    assert all("sha256" in line["sources"][0] and str(tmp_path) not in json.dumps(line) for line in items)


def test_other_shots_are_another_run(data: Path) -> None:
    facts = [task_facts(find_task("gsm8k", data, shots=n), chat=False) for n in (0, 1)]
    assert facts[0] != facts[1] and facts[0]["task_stops"]
    assert task_facts(TASKS["words"], chat=False) == {}
