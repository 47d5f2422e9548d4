"""MBPP: write a Python function from one sentence and three asserts, 3-shot, scored in the sandbox.

The prompt is the harness's. `strict`, which the papers report, runs the response as it is; `flexible` takes
the code out of a fence first, and runs the publisher's set-up code. The harness leaves that code out, so
task 367, the only test row that has any, cannot pass there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import ripple.benchmarks.hub as hub
from ripple.benchmarks.base import CodeBenchmark, check_shots, cut
from ripple.benchmarks.data import Row, Source, beside, find, read
from ripple.errors import RippleError
from ripple.tasks.base import Item

FIELDS = {"task_id": int, "code": str, "test_list": list}
SHOT_IDS = (2, 3, 4)  # the publisher's own three examples
TEST_IDS = range(11, 511)
N_TESTS = 3  # the harness shows and runs the first three; no row of the test range has another number

_FENCE = re.compile(r"```(?:[A-Za-z]\w*)?[ \t]*\n?(.*?)(?:```|\Z)", re.DOTALL)
_SPLIT = "\n# -- set-up of the asserts --\n"  # between the asserts and the set-up code of an item


def ask(row: Row) -> str:
    """Return the request as the model sees it."""
    asserts = "\n".join(row["test_list"][:N_TESTS])
    return (
        f"You are an expert Python programmer, and here is your task: {_sentence(row)} "
        f"Your code should pass these tests:\n\n{asserts}\n[BEGIN]\n"
    )


def unfenced(text: str) -> str:
    """Return the code of the first fenced block, or the text where there is none."""
    found = _FENCE.search(text)
    return found.group(1) if found else text


class Mbpp(CodeBenchmark):
    """Write a function from one sentence and three asserts."""

    name = "mbpp"
    headline = "strict"
    default_shots = len(SHOT_IDS)
    stops = ("[DONE]",)

    @classmethod
    def open(cls, data: Path, shots: int | None = None, allow_code: bool = False) -> Mbpp:
        """Read the publisher's file: ids 11 to 510 are the test items, ids 2, 3 and 4 the examples."""
        names = ("mbpp.jsonl", "mbpp.jsonl.gz", f"full/{hub.part('test')}")
        source = read(find(data, "mbpp", names), FIELDS)
        examples = beside(source.path, (hub.part("prompt"),))  # the hub keeps them in a file of their own
        sources = [source] if examples is None else [source, read(examples, FIELDS)]
        rows = _by_id(sources)
        k = check_shots(cls.name, shots, cls.default_shots, len(SHOT_IDS))
        missing = [str(number) for number in SHOT_IDS[:k] if number not in rows]
        if missing:
            raise RippleError(f"{source.path} lacks the worked example with task_id {', '.join(missing)}.")
        shown = "".join(f"{ask(rows[i])}{rows[i]['code']}\n[DONE]\n\n" for i in SHOT_IDS[:k])
        test = [rows[number] for number in TEST_IDS if number in rows]
        if not test:
            raise RippleError(f"{source.path} holds no test rows: their task_id is 11 to 510.")
        items = [_item(index, row, shown) for index, row in enumerate(test)]
        return cls(sources, items, k, allow_code=allow_code)

    def program(self, item: Item, text: str, mark: str) -> str:
        """Return the response with the three asserts behind it."""
        asserts, _, setup = item.tests.partition(_SPLIT)
        code = cut(text, self.stops)
        if mark == "strict":
            return f"{code}\n{asserts}"
        return f"{unfenced(code)}\n{setup}\n{asserts}"  # the set-up may use what the solution defines


def _item(index: int, row: Row, shown: str) -> Item:
    setup = "\n".join([*row.get("test_imports", []), row.get("test_setup_code", "")]).strip()
    asserts = "\n".join(row["test_list"][:N_TESTS])
    return Item(
        id=f"{Mbpp.name}/test/{index}",
        task=Mbpp.name,
        kind="program",
        prompt=shown + ask(row),
        solution=f"{row['code']}\n[DONE]",
        tests=asserts + (_SPLIT + setup if setup else ""),
    )


def _sentence(row: Row) -> str:
    """Return the request: the sanitized file calls it `prompt`."""
    return str(row["text"] if "text" in row else row["prompt"])


def _by_id(sources: Sequence[Source]) -> dict[int, Row]:
    rows: dict[int, Row] = {}
    for source in sources:
        for index, row in enumerate(source.rows):
            if not isinstance(row.get("text", row.get("prompt")), str):
                raise source.complain(index, "the field 'text' (or 'prompt') must be a string")
            number, tests = row["task_id"], row["test_list"]
            if len(tests) < N_TESTS and (number in TEST_IDS or number in SHOT_IDS):
                raise source.complain(index, f"the field 'test_list' must hold {N_TESTS} asserts")
            if number in rows:
                raise source.complain(index, f"the task_id {number} is there twice")
            rows[number] = row
    return rows
