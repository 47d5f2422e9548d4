"""MBPP: write a Python function from one sentence and three asserts, 3-shot, scored in the sandbox.

The prompt is the harness's. `strict`, which the papers report, runs the response as it is; `flexible` takes
the code out of a fence first, and runs the publisher's set-up code. The harness leaves that code out, so
task 367, the only test row that has any, cannot pass there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import ripple.tasks.published.hub as hub
from ripple.errors import RippleError
from ripple.tasks.base import Item, cut
from ripple.tasks.published.base import CodeBenchmark, check_shots
from ripple.tasks.published.data import DataFile, DataRow, find_file, read_file, sibling
from ripple.tasks.sandbox import Program

FIELDS = {"task_id": int, "code": str, "test_list": list}
SHOT_IDS = (2, 3, 4)  # the publisher's own three examples
TEST_IDS = range(11, 511)
N_TESTS = 3  # the harness shows and runs the first three; no row of the test range has another number

_DEFINED = re.compile(r"^(?:def|class)\s+(\w+)", re.MULTILINE)
_FENCE = re.compile(r"```(?:[A-Za-z]\w*)?[ \t]*\n?(.*?)(?:```|\Z)", re.DOTALL)
_SPLIT = "\n# -- set-up of the asserts --\n"  # between the asserts and the set-up code of an item


def question(row: DataRow) -> str:
    """Return the request as the model sees it."""
    asserts = "\n".join(row["test_list"][:N_TESTS])
    return (
        f"You are an expert Python programmer, and here is your task: {_sentence(row)} "
        f"Your code should pass these tests:\n\n{asserts}\n[BEGIN]\n"
    )


def unfenced(text: str) -> str:
    """Return the code of the first fenced block, or the text where there is none."""
    match = _FENCE.search(text)
    return match.group(1) if match else text


class Mbpp(CodeBenchmark):
    """Write a function from one sentence and three asserts."""

    name = "mbpp"
    summary = "a whole Python function, 3-shot, scored by three asserts"
    headline = "strict"
    default_shots = len(SHOT_IDS)
    stops = ("[DONE]",)

    @classmethod
    def open(cls, data: Path, shots: int | None = None, allow_code: bool = False) -> Mbpp:
        """Read the publisher's file: ids 11 to 510 are the test items, ids 2, 3 and 4 the examples."""
        names = ("mbpp.jsonl", "mbpp.jsonl.gz", f"full/{hub.parquet_file('test')}")
        source = read_file(find_file(data, "mbpp", names), FIELDS)
        examples = sibling(
            source.path, (hub.parquet_file("prompt"),)
        )  # the hub keeps them in a file of their own
        sources = [source] if examples is None else [source, read_file(examples, FIELDS)]
        rows = _by_id(sources)
        k = check_shots(cls.name, shots, cls.default_shots, len(SHOT_IDS))
        missing = [str(number) for number in SHOT_IDS[:k] if number not in rows]
        if missing:
            raise RippleError(f"{source.path} lacks the worked example with task_id {', '.join(missing)}.")
        shown = "".join(f"{question(rows[i])}{rows[i]['code']}\n[DONE]\n\n" for i in SHOT_IDS[:k])
        test = [rows[number] for number in TEST_IDS if number in rows]
        if not test:
            raise RippleError(f"{source.path} holds no test rows: their task_id is 11 to 510.")
        items = [_item(index, row, shown) for index, row in enumerate(test)]
        return cls(sources, items, k, allow_code=allow_code)

    def program(self, item: Item, text: str, mark: str) -> Program:
        """Return the response with the three asserts behind it."""
        asserts, _, setup = item.tests.partition(_SPLIT)
        code = cut(text, self.stops)
        wanted = tuple(_DEFINED.findall(item.solution))
        if mark == "strict":
            return Program(code, asserts, wanted)
        # The set-up may use what the solution defines.
        return Program(unfenced(code), f"{setup}\n{asserts}", wanted)


def _item(index: int, row: DataRow, shown: str) -> Item:
    setup = "\n".join([*row.get("test_imports", []), row.get("test_setup_code", "")]).strip()
    asserts = "\n".join(row["test_list"][:N_TESTS])
    return Item(
        id=f"{Mbpp.name}/test/{index}",
        task=Mbpp.name,
        kind="program",
        prompt=shown + question(row),
        solution=f"{row['code']}\n[DONE]",
        tests=asserts + (_SPLIT + setup if setup else ""),
    )


def _sentence(row: DataRow) -> str:
    """Return the request: the sanitized file calls it `prompt`."""
    return str(row["text"] if "text" in row else row["prompt"])


def _by_id(sources: Sequence[DataFile]) -> dict[int, DataRow]:
    rows: dict[int, DataRow] = {}
    for source in sources:
        for index, row in enumerate(source.rows):
            if not isinstance(row.get("text", row.get("prompt")), str):
                raise source.row_error(index, "the field 'text' (or 'prompt') must be a string")
            number, tests = row["task_id"], row["test_list"]
            if len(tests) < N_TESTS and (number in TEST_IDS or number in SHOT_IDS):
                raise source.row_error(index, f"the field 'test_list' must hold {N_TESTS} asserts")
            if number in rows:
                raise source.row_error(index, f"the task_id {number} is there twice")
            rows[number] = row
    return rows
