"""Items decoded on the workers of a cluster have the lines that one process writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ripple
from ripple.eval.runner import Evaluation, evaluate
from ripple.eval.sweep import summaries
from ripple.eval.workers import run_all
from ripple.files import Line, read_lines
from ripple.tasks import find_task
from tests.eval.conftest import rows
from tests.eval.on_ray import OPTIONS, N, pieces


def without_clocks(lines: list[Line]) -> list[Line]:
    return sorted(
        ({name: value for name, value in line.items() if name not in ("seconds", "tps")} for line in lines),
        key=lambda line: (line["task"], line["setting"]),
    )


@pytest.mark.slow
def test_scores_on_a_cluster_equal_those_of_one_process(
    checkpoint: Path, engine: ripple.Engine, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.eval.on_ray", str(checkpoint), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    here = tmp_path / "here.jsonl"
    evaluate(Evaluation(engine, find_task("words"), OPTIONS, "small"), here, N)
    assert rows(tmp_path / "items.jsonl", "environment") == rows(here, "environment")
    assert len(rows(here)) == N
    alone = list(run_all(summaries, pieces(str(checkpoint)), 1))
    assert without_clocks(read_lines(tmp_path / "summaries.jsonl")) == without_clocks(alone)
    assert len(alone) == 4
