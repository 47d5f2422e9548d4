"""A real process, killed at random moments, then left to finish: the file is that of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

import ripple
from ripple.cli import main
from ripple.errors import RippleError
from ripple.files import read_lines
from tests.eval.conftest import go, rows
from tests.eval.forks import fork, is_alive, wait

N = 24


def words(checkpoint: Path, out: Path) -> list[str]:
    return [
        "eval", "--task", "words", "--model", str(checkpoint), "--device", "cpu", "--decoder", "default",
        "--length", "48", "--limit", str(N), "--batch", "3", "--out", str(out), "--json",
    ]  # fmt: skip


def wait_for_growth(path: Path, pid: int) -> None:
    """Wait until the run has written something of its own."""
    size, deadline = path.stat().st_size if path.exists() else 0, time.monotonic() + 60
    while (path.stat().st_size if path.exists() else 0) <= size:
        assert is_alive(pid) and time.monotonic() < deadline
        time.sleep(0.005)


def test_killed_three_times_equals_undisturbed(
    checkpoint: Path, engine: ripple.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, calm = tmp_path / "killed.jsonl", tmp_path / "calm.jsonl"
    rng = random.Random(7)
    counts = []
    for number in range(3):
        pid = fork(lambda: main(words(checkpoint, out)))
        wait_for_growth(out, pid)
        if number == 0:  # a second run on the same file is refused while the first, here asleep, is alive
            os.kill(pid, signal.SIGSTOP)
            with pytest.raises(RippleError, match="Another run is writing"):
                go(engine, out)
            os.kill(pid, signal.SIGCONT)
        time.sleep(rng.uniform(0, 0.1))
        os.kill(pid, signal.SIGKILL)
        assert wait(pid) == -signal.SIGKILL
        counts.append(len(rows(out)))
    told = []
    for path in (out, calm):
        assert main(words(checkpoint, path)) == 0
        told.append(json.loads(capsys.readouterr().out))
    # `environment` names the source, which somebody may be editing while this test runs.
    assert rows(out, "environment") == rows(calm, "environment") and len(rows(out)) == N
    assert counts == sorted(counts) and counts[0] < N
    kinds = [line["kind"] for line in read_lines(out)]
    assert kinds.count("run") == 1 and len(kinds) == N + 1 + kinds.count("environment")
    for name in ("run", "n", "accuracy", "nfe", "canvases", "new_tokens"):
        assert told[0][name] == told[1][name]
