"""The one runner: a task's items are decoded in continuous batches, scored, and become result lines.

`ripple eval` keeps each item's line, so that it resumes item by item; sweeps pack the lines of a finished run
into one (`summary.py`). Requests do not influence each other, so the lines do not depend on company or order.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ripple.engine.engine import Engine
from ripple.engine.prompts import Prompt
from ripple.errors import RippleError
from ripple.eval.decoding import NamedPrompt, decode, one_forward, response
from ripple.eval.facts import environment_line, run_facts
from ripple.eval.lines import make_line, read_results, run_line, short_hash
from ripple.eval.results import StoredRun, Summary, summarize
from ripple.files import Line, append_line, locked, truncate_partial_line
from ripple.options import LENGTH, Options
from ripple.progress import Progress
from ripple.tasks import Item, Task, Verdict, cut

# Code is scored in processes of its own, side by side: a group this large, or as old as this at most.
GROUP, GROUP_S = 8, 2.0


class Scorer:
    """Judges the responses to a task; a response that was given before is not judged again."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._verdicts: dict[tuple[str, str], Verdict] = {}

    def judge(self, items: Sequence[Item], texts: Sequence[str]) -> list[Verdict]:
        """Return a verdict for each response."""
        pairs = {(item.id, text): item for item, text in zip(items, texts, strict=True)}
        fresh = {key: item for key, item in pairs.items() if key not in self._verdicts}
        verdicts = self.task.judge_many(list(fresh.values()), [text for _, text in fresh]) if fresh else []
        self._verdicts |= dict(zip(fresh, verdicts, strict=True))
        return [self._verdicts[item.id, text] for item, text in zip(items, texts, strict=True)]


class TaskRun(ABC):
    """One run: a model on a task with one set of options, wherever it is decoded."""

    task: Task
    options: Options
    chat: bool  # each prompt is a user's turn in the model's chat template

    @property
    @abstractmethod
    def facts(self) -> Line:
        """Everything that determines what is decoded."""

    @property
    @abstractmethod
    def environment(self) -> Line:
        """What it is decoded with."""

    @abstractmethod
    def warm_up(self, item: Item) -> None:
        """Have the first items not pay for the device's start."""

    @abstractmethod
    def responses(self, items: Sequence[Item]) -> Iterator[tuple[int, Line]]:
        """Yield the number of each item and `decoding.response` as it ends; raise at the end what failed."""

    @property
    def stops(self) -> tuple[str, ...]:
        """Where a response is cut before it is scored."""
        return self.task.stops_for(self.chat)

    def prompt(self, item: Item, trace: bool = False) -> NamedPrompt:
        """Return what is decoded for an item; a trace for each of many would fill the memory."""
        options = replace(self.options, trace=trace, length=self.options.length or LENGTH)
        return NamedPrompt(f"Item {item.id}", chat_prompt(item.prompt, self.chat), options)

    def measured(self, items: Sequence[Item], scorer: Scorer, at_once: bool = False) -> Iterator[Line]:
        """Yield for each item, as it is scored, what an item line says of it.

        Code is scored in small groups while others are decoded, or `at_once` when all are. What failed is
        raised after the last line.
        """
        group: list[tuple[Item, Line]] = []
        error: RippleError | None = None
        since = time.monotonic()
        try:
            for i, line in self.responses(items):
                since = since if group else time.monotonic()
                group.append((items[i], line))
                is_due = len(group) >= GROUP or time.monotonic() - since > GROUP_S
                if not self.task.runs_code or (is_due and not at_once):
                    yield from self._scored(group, scorer)
                    group = []
        except RippleError as failure:
            error = failure
        yield from self._scored(group, scorer)
        if error is not None:
            raise error

    def _scored(self, group: Sequence[tuple[Item, Line]], scorer: Scorer) -> Iterator[Line]:
        texts = [cut(line["text"], self.stops) for _, line in group]
        verdicts = scorer.judge([item for item, _ in group], texts)
        for (item, line), verdict in zip(group, verdicts, strict=True):
            yield {
                "item": item.id, "digest": digest(item), "right": verdict.right,
                "marks": dict(verdict.marks), "found": dict(verdict.found), **line,
            }  # fmt: skip


@dataclass(frozen=True)
class Evaluation(TaskRun):
    """A run on one engine in this process."""

    engine: Engine
    task: Task
    options: Options
    model: str  # as result lines name it
    chat: bool = False

    @cached_property
    def facts(self) -> Line:
        """Everything that determines what is decoded."""
        return run_facts(self.engine, self.task, self.options, self.model, self.chat)

    @property
    def environment(self) -> Line:
        """Code, libraries and machine."""
        return environment_line(self.engine)

    def warm_up(self, item: Item) -> None:
        """Run one forward."""
        prompt = self.prompt(item)._replace(options=one_forward(self.engine, self.options.length or LENGTH))
        for _ in decode(self.engine, [prompt]):
            pass

    def responses(self, items: Sequence[Item]) -> Iterator[tuple[int, Line]]:
        """Decode in continuous batches."""
        for i, result in decode(self.engine, [self.prompt(item) for item in items]):
            yield i, response(self.engine, result, self.stops)


def chat_prompt(prompt: str, chat: bool) -> Prompt:
    """Return a prompt, as a user's turn where a chat template is wanted."""
    return [{"role": "user", "content": prompt}] if chat else prompt


def digest(item: Item) -> str:
    """Hash what an item asks and how it is scored."""
    return short_hash({"prompt": item.prompt, "answer": item.answer, "tests": item.tests})


def first_items(task: Task, limit: int | None) -> list[Item]:
    """Return the first test items, or all of them."""
    if limit is not None and limit < 1:
        raise RippleError(f"The limit must be at least 1 item, got {limit}.")
    return task.test_items() if limit is None else task.test_items(limit)


# -- a file of item lines ---------------------------------------------------------------------------------


def evaluate(run: TaskRun, out: Path, limit: int | None = None, is_quiet: bool = True) -> Summary:
    """Decode and score the first `limit` test items that `out` lacks, then sum up all of them.

    Each item's line is on the disk before the next is scored, so that a kill loses the items that were not
    scored yet and nothing else. Other facts make another run, kept apart in the same file.
    """
    items = first_items(run.task, limit)
    head = run_line(run.facts)
    with locked(out):
        lines = read_results(out)
        truncate_partial_line(out)
        done = _done(out, lines, head["run"], items)
        todo = [item for item in items if item.id not in done]
        with Progress(f"{run.task.name}, {head['setting']}", len(items), is_quiet or not todo) as progress:
            progress.skip(len(done))
            if todo:
                run.warm_up(todo[0])
            environment = run.environment
            unsaid = [line for line in (head, environment) if line not in lines]
            for measured in run.measured(todo, Scorer(run.task)):
                for line in unsaid:
                    append_line(out, line)
                unsaid = []
                names = {"run": head["run"], "environment": environment["environment"]}
                line = make_line("item", names | measured)
                append_line(out, line)
                done[line["item"]] = line
                progress.update(note=f"{sum(row['right'] for row in done.values())} of {len(done)} right")
    return summarize(StoredRun(head, [done[item.id] for item in items]))


def _done(out: Path, lines: Sequence[Line], run: str, items: Sequence[Item]) -> dict[str, Line]:
    """Return this run's lines by item, after checking that they are about the same items."""
    wanted = {item.id: item for item in items}
    rows = {
        line["item"]: line
        for line in lines
        if line["kind"] == "item" and line["run"] == run and line["item"] in wanted
    }
    for name, row in rows.items():
        if row["digest"] != digest(wanted[name]):
            raise RippleError(f"{out} was made with another version of item {name}; name another file.")
    return rows
