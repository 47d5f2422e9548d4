"""The runner: a model on a task, one result line per item, resumable at any moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ripple.benchmarks import BENCHMARKS, Benchmark, open_benchmark
from ripple.benchmarks.hub import fetch
from ripple.errors import RippleError, unknown
from ripple.tasks import TASKS, Task


def find_task(
    name: str, data: Path | None = None, shots: int | None = None, shots_file: Path | None = None,
    allow_code: bool = False,
) -> Task:  # fmt: skip
    """Return the task of that name; the one place where names become tasks.

    A generated family needs nothing else. A published benchmark is read from `data`, its publisher's file
    or a folder of them, or without it from the hub, and one that runs code wants to be allowed to.
    """
    if name in BENCHMARKS:
        where = fetch(name) if data is None else data
        task = open_benchmark(name, where, shots, shots_file=shots_file, allow_code=allow_code)
        task.check_ready()
        return task
    if name not in TASKS:
        raise unknown("task", name, [*TASKS, *BENCHMARKS])
    if data is not None or shots is not None or shots_file is not None:
        raise RippleError(f"Task {name} is generated and takes neither data nor shots.")
    return TASKS[name]


def task_facts(task: Task, chat: bool) -> dict[str, Any]:
    """Return what a benchmark's name leaves open: its files, shots and stop strings; a family has none."""
    if not isinstance(task, Benchmark):
        return {}
    return {
        "shots": task.shots, "sources": [source.describe() for source in task.sources],
        "notes": list(task.notes), "task_stops": list(task.stops_for(chat)),
    }  # fmt: skip
