"""A real Ray cluster on this machine: a worker is killed, and the file is that of one process."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ripple.cli import main
from tests.batch.conftest import prompts, write

N = 40


def words(checkpoint: Path, file: Path, out: Path, *more: str) -> list[str]:
    return [
        "batch", "--input", str(file), "--output", str(out), "--model", str(checkpoint), "--device", "cpu",
        "--decoder", "default", "--length", "64", "--batch", "2", *more,
    ]  # fmt: skip


@pytest.mark.slow
def test_a_job_whose_worker_is_killed_equals_one_process(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = prompts(N)
    rows[5]["prompt"] = ""
    file = write(tmp_path / "p.jsonl", rows)
    command = [sys.executable, "-m", "ripple", *words(checkpoint, file, tmp_path / "ray", "--workers", "2")]
    unfinished = tmp_path / "ray" / "unfinished.jsonl"
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while not (unfinished.exists() and unfinished.stat().st_size):
            assert job.poll() is None
            time.sleep(0.02)
        cluster = psutil.Process(job.pid).children(recursive=True)
        next(
            process for process in cluster if "MapWorker" in process.name() + "".join(process.cmdline())
        ).kill()
        out, err = job.communicate(timeout=60)
    finally:
        job.kill()
    assert (job.returncode, out) == (
        0,
        f"{N} rows, 1 of them with an error, in {tmp_path}/ray/results.jsonl\n",
    ), err
    assert main(words(checkpoint, file, tmp_path / "alone")) == 0
    for name in ("results.jsonl", "job.json"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    _, alive = psutil.wait_procs(cluster, timeout=30)
    assert not alive
