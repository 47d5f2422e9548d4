"""A real process, killed at random moments, then left to finish: the file is that of an undisturbed job."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from ripple.batch import job as job_module
from ripple.cli import main
from tests.batch.conftest import lines, prompts, write
from tests.eval.forks import fork, is_alive, wait

N = 40


def words(checkpoint: Path, file: Path, out: Path) -> list[str]:
    return [
        "batch", "--input", str(file), "--output", str(out), "--model", str(checkpoint), "--device", "cpu",
        "--decoder", "default", "--length", "48", "--batch", "3",
    ]  # fmt: skip


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_killed_three_times_equals_undisturbed(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job_module, "GROUP", 2)
    file, rng, kept = write(tmp_path / "p.jsonl", prompts(N)), random.Random(5), []
    killed, calm = tmp_path / "killed", tmp_path / "calm"
    unfinished = killed / "unfinished.jsonl"
    for number in range(3):
        before, deadline = size(unfinished), time.monotonic() + 60
        pid = fork(lambda: main(words(checkpoint, file, killed)))
        while size(unfinished) <= before:  # until the job has written something of its own
            assert is_alive(pid) and time.monotonic() < deadline
            time.sleep(0.005)
        if number == 0:  # a second job in the same folder is refused while the first, here asleep, is alive
            os.kill(pid, signal.SIGSTOP)
            assert main(words(checkpoint, file, killed)) == 2
            assert "Another run is writing" in capsys.readouterr().err
            os.kill(pid, signal.SIGCONT)
        time.sleep(rng.uniform(0, 0.1))
        os.kill(pid, signal.SIGKILL)
        assert wait(pid) == -signal.SIGKILL
        kept.append(len(unfinished.read_text().splitlines()))
    assert kept == sorted(kept) and kept[0] < kept[-1] < N
    for out in (killed, calm):
        assert main(words(checkpoint, file, out)) == 0
        assert capsys.readouterr().out == f"{N} rows in {out / 'results.jsonl'}\n"
    assert (killed / "results.jsonl").read_bytes() == (calm / "results.jsonl").read_bytes()
    assert [line["id"] for line in lines(calm / "results.jsonl")] == [f"r{i}" for i in range(N)]
