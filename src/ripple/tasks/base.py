"""What a task is: items with prompts, and a judge that says which responses are right.

Generated families and published benchmarks have the same protocol, so an evaluation need not know which of
the two it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ripple.errors import RippleError


@dataclass(frozen=True, slots=True)
class Item:
    """One problem with one of its valid solutions."""

    id: str  # "<task>/<stream>/<index>": enough to make the item again
    task: str
    kind: str  # which sort of problem within the task
    prompt: str  # what the model is given; the response starts right after it
    solution: str  # one of several valid responses
    answer: str = ""  # the final answer, where the response is text
    tests: str = ""  # hidden asserts, where the response is code


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one response is right, and why."""

    right: bool  # the mark that is reported
    marks: Mapping[str, bool] = field(default_factory=dict)  # every mark by name; a family has only `right`
    found: Mapping[str, str] = field(default_factory=dict)  # by mark: the answer, or how the program ended


class Task(Protocol):
    """Everything an evaluation needs to know of a generated family or a published benchmark."""

    name: str
    summary: str  # one line
    runs_code: bool  # whether judging runs what the model wrote
    size: int  # number of test items

    def stops_for(self, chat: bool) -> tuple[str, ...]:
        """Return the strings that end a response, given whether prompts are put in a chat template."""
        ...

    def check_ready(self) -> None:
        """Raise before any generation what judging would raise after it."""
        ...

    def facts(self, chat: bool) -> dict[str, Any]:
        """Return what the task's name leaves open and a result line must carry, as JSON values."""
        ...

    def generate(self, stream: str, index: int) -> Item:
        """Return item `index` of a stream, always the same one."""
        ...

    def test_items(self, n: int | None = None) -> list[Item]:
        """Return the first n test items, by default all of them."""
        ...

    def judge_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[Verdict]:
        """Judge one response per item; `workers` are the processes that run code, 0 means one per core."""
        ...

    def score_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[bool]:
        """Say of each response whether it is right."""
        ...

    def score(self, item: Item, text: str) -> bool:
        """Say whether a response is right."""
        ...


def paired(items: Sequence[Item], texts: Sequence[str]) -> Iterator[tuple[Item, str]]:
    """Return each item with its response."""
    if len(items) != len(texts):
        raise RippleError(f"Each item needs one response: {len(items)} items have {len(texts)}.")
    return zip(items, texts, strict=True)


def cut(text: str, stops: Sequence[str]) -> str:
    """Cut a response at its stop strings, one stop after the other as the harness's models do."""
    for stop in stops:
        if stop:
            text = text.split(stop, 1)[0]
    return text


def item_count(n: int | None, default: int) -> int:
    """Return how many items were asked for."""
    if n is not None and n < 0:
        raise RippleError(f"The number of items must be 0 or more, not {n}.")
    return default if n is None else n


def check_code_allowed(task: Task, model: str, allow_code: bool, embedded: Collection[str]) -> None:
    """Refuse to run a model's code without permission; the models that come with the package need none.

    Args:
        task: What is to be evaluated.
        model: The model as the user named it.
        allow_code: The user's permission.
        embedded: The names of the models that come with the package.
    """
    if task.runs_code and not allow_code and model not in embedded:
        raise code_not_allowed(task.name)


def code_not_allowed(task: str) -> RippleError:
    """Return the error for a task that may not run code."""
    return RippleError(
        f"{task} is scored by running code that a model wrote, in a sandbox (docs/sandbox.md says what it "
        "stops): allow it with allow_code=True (--allow-code)."
    )
