"""HumanEval: complete a Python function, 0-shot, scored by the publisher's tests in the sandbox.

`flexible`, which the papers report, tests the program after the clean-up of `clean.py`. `strict` tests
prompt and response joined as they are, which is what the harness does.

The published clean-up keeps what the wanted function reaches and forgets what the tests call: an item whose
tests use a helper of the prompt that the solution does not need (HumanEval/50) can then never pass. That is
the default, because the papers' figures contain it; the clean-up "fair" keeps those helpers too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import ripple.tasks.published.clean as clean
import ripple.tasks.published.hub as hub
from ripple.errors import unknown
from ripple.tasks.base import Item, cut
from ripple.tasks.published.base import CodeBenchmark, check_shots
from ripple.tasks.published.data import DataFile, find_file, read_file
from ripple.tasks.sandbox import Program

FIELDS = {"task_id": str, "prompt": str, "entry_point": str, "canonical_solution": str, "test": str}
CLEANUPS = ("published", "fair")

_CHECK = re.compile(r"check\((\w+)\)\s*\Z")


class HumanEval(CodeBenchmark):
    """Complete a function from its signature and docstring."""

    name = "humaneval"
    summary = "the body of a Python function, 0-shot, scored by tests"
    headline = "flexible"
    stops = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")

    def __init__(self, sources: Sequence[DataFile], items: Sequence[Item], allow_code: bool, cleanup: str):
        note = f"The mark 'flexible' is given after the clean-up {cleanup!r}."
        super().__init__(sources, items, 0, (note,), allow_code)
        self.cleanup = cleanup

    @classmethod
    def open(
        cls, data: Path, shots: int | None = None, allow_code: bool = False, cleanup: str = "published"
    ) -> HumanEval:
        """Read the publisher's file."""
        check_shots(cls.name, shots, 0, 0)
        if cleanup not in CLEANUPS:
            raise unknown("clean-up", cleanup, CLEANUPS)
        names = ("HumanEval.jsonl.gz", "HumanEval.jsonl", f"openai_humaneval/{hub.parquet_file('test')}")
        source = read_file(find_file(data, "humaneval", names), FIELDS)
        for index, row in enumerate(source.rows):
            if not row["entry_point"].isidentifier():
                raise source.row_error(index, "the field 'entry_point' must be the name of a function")
        items = [
            Item(
                id=f"{cls.name}/test/{index}",
                task=cls.name,
                kind="function",
                prompt=row["prompt"],
                solution=row["canonical_solution"],
                tests=f"{row['test']}\ncheck({row['entry_point']})",
            )
            for index, row in enumerate(source.rows)
        ]
        return cls([source], items, allow_code, cleanup)

    def stops_for(self, chat: bool) -> tuple[str, ...]:
        """Return no stop strings for chat: there the response opens with the `def` that would cut it."""
        return () if chat else self.stops

    def program(self, item: Item, text: str, mark: str) -> Program:
        """Return the cleaned program with the tests, or for `strict` the text cut at the stop strings."""
        wanted = entry_point(item)
        if mark == "strict":
            return Program(item.prompt + cut(text, self.stops), item.tests, (wanted,))
        needed = [wanted]
        if self.cleanup == "fair":
            needed += clean.names_in(item.tests)
        return Program(clean.program(item.prompt, text, *needed), item.tests, (wanted,))


def entry_point(item: Item) -> str:
    """Return the name of the function that an item asks for, from the last line of its tests."""
    match = _CHECK.search(item.tests)
    return match.group(1) if match else ""
