"""Four generated task families: `words`, `algebra`, `functions` and `programs`."""

from __future__ import annotations

from ripple.tasks.generated.algebra import Algebra
from ripple.tasks.generated.base import GeneratedTask
from ripple.tasks.generated.functions import Functions
from ripple.tasks.generated.programs import Programs
from ripple.tasks.generated.words import Words

TASKS: dict[str, GeneratedTask] = {task.name: task for task in (Words(), Algebra(), Functions(), Programs())}
