"""Tasks: four generated families (`TASKS`) and four published benchmarks (`BENCHMARKS`), one protocol."""

from __future__ import annotations

from pathlib import Path

from ripple.errors import RippleError, unknown
from ripple.tasks.base import Item, Task, Verdict, check_code_allowed, cut
from ripple.tasks.generated import TASKS
from ripple.tasks.generated.base import DEVELOPMENT, TEST_ITEMS, GeneratedTask
from ripple.tasks.published import BENCHMARKS, open_benchmark
from ripple.tasks.published.hub import fetch

__all__ = [
    "BENCHMARKS",
    "TASKS",
    "TEST_ITEMS",
    "GeneratedTask",
    "Item",
    "Task",
    "Verdict",
    "check_code_allowed",
    "cut",
    "find_task",
    "get_task",
    "open_benchmark",
]


def get_task(name: str) -> GeneratedTask:
    """Return the generated family of that name; `words/development` has items to choose settings on."""
    family = name.removesuffix(DEVELOPMENT)
    if family not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name] if family == name else TASKS[family].development()


def find_task(
    name: str,
    data: Path | None = None,
    shots: int | None = None,
    shots_file: Path | None = None,
    allow_code: bool = False,
) -> Task:
    """Return the task of that name, ready to be evaluated.

    A generated family needs nothing else. A published benchmark is read from `data`, its publisher's file
    or a folder of them, or without it from the hub; one that runs code needs `allow_code`.
    """
    if name in BENCHMARKS:
        benchmark = open_benchmark(name, fetch(name) if data is None else data, shots, shots_file, allow_code)
        benchmark.check_ready()
        return benchmark
    if name.removesuffix(DEVELOPMENT) not in TASKS:
        raise unknown("task", name, [*TASKS, *BENCHMARKS])
    if data is not None or shots is not None or shots_file is not None:
        raise RippleError(f"Task {name} is generated and takes neither data nor shots.")
    return get_task(name)
