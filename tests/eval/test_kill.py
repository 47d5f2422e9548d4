"""A real process, killed at random moments, then left to finish: the file is that of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ripple
from ripple.analysis.lines import read_lines
from ripple.cli import main
from ripple.errors import RippleError
from tests.eval.conftest import go, rows

N = 24


def words(checkpoint: Path, out: Path) -> list[str]:
    return [
        "eval", "--task", "words", "--model", str(checkpoint), "--device", "cpu", "--decoder", "default",
        "--length", "48", "--limit", str(N), "--batch", "3", "--out", str(out), "--json",
    ]  # fmt: skip


def start(checkpoint: Path, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ripple", *words(checkpoint, out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def wait_for_growth(path: Path, process: subprocess.Popen[str]) -> None:
    """Wait until the run has written something of its own."""
    size, deadline = path.stat().st_size if path.exists() else 0, time.monotonic() + 60
    while (path.stat().st_size if path.exists() else 0) <= size:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.slow  # four starts of an interpreter; cuts at random bytes are tested in test_run
def test_killed_three_times_equals_undisturbed(
    checkpoint: Path, engine: ripple.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, calm = tmp_path / "killed.jsonl", tmp_path / "calm.jsonl"
    rng = random.Random(7)
    counts = []
    for number in range(3):
        process = start(checkpoint, out)
        wait_for_growth(out, process)
        if number == 0:  # a second run on the same file is refused while the first, here asleep, is alive
            process.send_signal(signal.SIGSTOP)
            with pytest.raises(RippleError, match="Another run is writing"):
                go(engine, out)
            process.send_signal(signal.SIGCONT)
        time.sleep(rng.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        counts.append(len(rows(out)))
    last = start(checkpoint, out)
    shown, _ = last.communicate(timeout=120)
    assert last.returncode == 0
    capsys.readouterr()
    assert main(words(checkpoint, calm)) == 0
    # `environment` names the source, which somebody may be editing while this test runs.
    assert rows(out, "environment") == rows(calm, "environment") and len(rows(out)) == N
    assert counts == sorted(counts) and counts[0] < N
    kinds = [{**line, "source": ""} for line in read_lines(out) if line["kind"] == "environment"]
    assert all(kind == kinds[0] for kind in kinds)
    told, told_calm = json.loads(shown), json.loads(capsys.readouterr().out)
    for name in ("run", "n", "accuracy", "nfe", "rows", "new_tokens"):
        assert told[name] == told_calm[name]
