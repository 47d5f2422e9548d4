"""The runner: a model on a task, one result line per item, resumable at any moment."""

from __future__ import annotations

from ripple.tasks import Task, get_task


def find_task(name: str) -> Task:
    """Return the task of that name; the one place where names become tasks."""
    return get_task(name)
