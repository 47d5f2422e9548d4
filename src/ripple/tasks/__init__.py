"""Four generated task families: `words`, `algebra`, `functions` and `programs`."""

from __future__ import annotations

from ripple.errors import unknown
from ripple.tasks.algebra import Algebra
from ripple.tasks.base import TEST_ITEMS, Item, Task
from ripple.tasks.functions import Functions
from ripple.tasks.programs import Programs
from ripple.tasks.words import Words

__all__ = ["TASKS", "TEST_ITEMS", "Item", "Task", "get_task"]

TASKS: dict[str, Task] = {task.name: task for task in (Words(), Algebra(), Functions(), Programs())}


def get_task(name: str) -> Task:
    """Return the family of that name."""
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name]
