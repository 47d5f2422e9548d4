"""Kills jobs with SIGKILL at random moments, resumes them, and counts what was lost, doubled or changed.

    python tools/kill_jobs.py batch --kills 100 --out results/survival-cpu.jsonl
    python tools/kill_jobs.py eval --kills 200 --out results/survival-cpu.jsonl

Every process is a fork of this one, which has imported torch, so that a kill costs no new interpreter. Half
of the kills come after a random time, half just before a random operation on a file: a write, an fsync, a
rename. A job is killed again and again until it ends by itself; then its file is compared with that of an
undisturbed job.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

import ripple
import ripple.eval.runner  # so that no fork imports it again
from ripple.batch import job as batch_job
from ripple.cli import main
from ripple.files import append_line, read_lines
from ripple.models.random_checkpoint import write_random_checkpoint

CLOCKS = ("seconds", "engine_seconds", "environment")
N_ROWS = {"batch": 96, "eval": 24}
GROUP = 4  # rows per write of a batch: a job of seconds is to have many
FILE_EVENTS = ("open", "os.rename", "os.remove", "os.truncate", "fcntl.flock")
FILE_CALLS = ("write", "fsync", "ftruncate")


class Found(NamedTuple):
    """What a finished file holds."""

    names: list[Any]  # of its rows, as often as they are there
    content: object  # all but clocks


def write_prompts(path: Path, n: int, length: int = 8) -> Path:
    """Write rows of several lengths and seeds, a few of them bad."""
    rows = [
        {
            "id": f"r{i}",
            "prompt": f"{i} + {i} =" if i % 16 else "",
            "options": {"length": length * (1 + i % 5)},
        }
        for i in range(n)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def batch_words(model: Path, folder: Path) -> list[str]:
    """Return the command of a batch job."""
    return [
        "batch", "--input", str(folder.parent / "prompts.jsonl"), "--output", str(folder), "--model",
        str(model), "--device", "cpu", "--decoder", "default", "--batch", "3", "--json",
    ]  # fmt: skip


def eval_words(model: Path, folder: Path) -> list[str]:
    """Return the command of an evaluation."""
    return [
        "eval", "--task", "words", "--model", str(model), "--device", "cpu", "--decoder", "default",
        "--length", "32", "--limit", str(N_ROWS["eval"]), "--batch", "3", "--out",
        str(folder / "lines.jsonl"), "--json",
    ]  # fmt: skip


def batch_found(folder: Path) -> Found:
    """Read the results of a batch job."""
    data = (folder / "results.jsonl").read_bytes() + (folder / "job.json").read_bytes()
    assert sorted(path.name for path in folder.iterdir() if not path.name.endswith(".part")) == [
        "job.json", "results.jsonl",
    ]  # fmt: skip
    return Found([line["id"] for line in read_lines(folder / "results.jsonl")], data)


def eval_found(folder: Path) -> Found:
    """Read the lines of an evaluation; their order is that of their ends."""
    items = [line for line in read_lines(folder / "lines.jsonl") if line["kind"] == "item"]
    content = sorted(json.dumps({k: v for k, v in item.items() if k not in CLOCKS}) for item in items)
    return Found([item["item"] for item in items], content)


JOBS: dict[str, tuple[Callable[[Path, Path], list[str]], Callable[[Path], Found]]] = {
    "batch": (batch_words, batch_found), "eval": (eval_words, eval_found),
}  # fmt: skip


def fork(
    words: Sequence[str], on_file: Callable[[], None] | None = None, at_end: Callable[[], None] | None = None
) -> int:
    """Run a command in a fork of this process; `on_file` is called before each of its file operations."""
    if pid := os.fork():
        return pid
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    if on_file is not None:
        sys.addaudithook(lambda event, _: on_file() if event in FILE_EVENTS else None)
        for name in FILE_CALLS:
            setattr(os, name, partial(_after, on_file, getattr(os, name)))
    code = main(words)
    if at_end is not None:
        at_end()
    os._exit(code)


def _after(first: Callable[[], None], call: Callable[..., Any], *arguments: Any) -> Any:
    first()
    return call(*arguments)


def wait(pid: int) -> int:
    """Wait for a process and return its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def die_at(n: int) -> Callable[[], None]:
    """Return what kills its process when it is called for the n-th time."""
    calls = itertools.count(1)
    return lambda: os.kill(os.getpid(), signal.SIGKILL) if next(calls) == n else None


def count_operations(words: Sequence[str]) -> tuple[int, float]:
    """Return how many file operations an undisturbed job makes, and how long it takes."""
    read, write = os.pipe()
    calls, start = itertools.count(), time.monotonic()
    say = os.write  # the one that counts nothing
    pid = fork(words, lambda: next(calls) and None, lambda: say(write, str(next(calls)).encode()) and None)
    assert wait(pid) == 0
    return int(os.read(read, 20)), time.monotonic() - start


def kill_once(words: Sequence[str], rng: random.Random, n_operations: int, seconds: float) -> bool:
    """Start or resume a job and kill it at a random moment; return whether the kill came before its end."""
    if rng.random() < 0.5:
        pid = fork(words, die_at(rng.randrange(1, n_operations)))
    else:
        pid = fork(words)
        deadline = time.monotonic() + rng.uniform(0, seconds)
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() >= deadline:
                os.kill(pid, signal.SIGKILL)
                break
            time.sleep(0.002)
    code = wait(pid)
    assert code in (0, -signal.SIGKILL), f"the job ended with {code}"
    return code != 0


def run(kind: str, n_kills: int, seed: int, folder: Path) -> dict[str, Any]:
    """Kill jobs of a kind until there were so many kills, and sum up what they came to."""
    words_of, found_in = JOBS[kind]
    model = write_random_checkpoint(folder / "model", vocab_size=328, d_model=32, n_heads=2, d_ff=32)
    write_prompts(folder / "prompts.jsonl", N_ROWS["batch"])
    n_operations, seconds = count_operations(words_of(model, folder / "calm"))
    calm = found_in(folder / "calm")
    assert len(calm.names) == len(set(calm.names)) == N_ROWS[kind]
    rng, kills, jobs, lost, doubled, same = random.Random(seed), 0, 0, 0, 0, 0
    while kills < n_kills:
        out = folder / f"job{jobs}"
        words = words_of(model, out)
        while kills < n_kills and kill_once(words, rng, n_operations, seconds):
            kills += 1
        assert wait(fork(words)) == 0
        found = found_in(out)
        jobs += 1
        lost += len(set(calm.names) - set(found.names))
        doubled += len(found.names) - len(set(found.names))
        same += found.content == calm.content
        print(
            f"{kills} kills, {jobs} jobs: {lost} lost, {doubled} doubled, {same} identical", file=sys.stderr
        )
    return {
        "bench": "kill", "what": kind, "victim": "process", "n": kills, "jobs": jobs, "rows": N_ROWS[kind],
        "lost": lost, "doubled": doubled, "identical": same, "seed": seed, "ripple": ripple.__version__,
        "torch": str(torch.__version__), "python": platform.python_version(),
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=list(JOBS))
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    batch_job.GROUP = GROUP
    with tempfile.TemporaryDirectory() as place:
        append_line(args.out, run(args.what, args.kills, args.seed, Path(place)))
