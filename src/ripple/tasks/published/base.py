"""What every published benchmark shares: fixed rows from files, stop strings, and two marks per response.

A benchmark gives each response two marks. `strict` wants exactly the asked-for form; `flexible` looks for
the answer wherever it stands. Which of the two the papers report differs by benchmark: `headline` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ripple.tasks.sandbox as sandbox
from ripple.errors import RippleError, unknown
from ripple.tasks.base import Item, Verdict, code_not_allowed, item_count, paired
from ripple.tasks.published.data import DataFile

MARKS = ("strict", "flexible")
CODE_TIMEOUT_S = 3.0  # what the harness's code metric allows one program
NO_ANSWER = "[invalid]"  # the harness's word


class Benchmark:
    """A published benchmark: its items are fixed rows, and there is only a test stream."""

    name = ""
    summary = ""
    headline = "flexible"
    default_shots = 0
    runs_code = False
    stops: tuple[str, ...] = ()

    def __init__(
        self, sources: Sequence[DataFile], items: Sequence[Item], shots: int, notes: Sequence[str] = ()
    ):
        self.sources = tuple(sources)  # the files that were read, with their checksums
        self.shots = shots
        self.notes = tuple(notes)  # sentences that a report must carry
        self.size = len(items)
        self._items = tuple(items)

    def stops_for(self, chat: bool) -> tuple[str, ...]:
        """Return the strings that end a response, given whether prompts are put in a chat template."""
        return self.stops

    def check_ready(self) -> None:
        """Raise before any generation what judging would raise after it."""

    def facts(self, chat: bool) -> dict[str, Any]:
        """Return the shots, the files with their checksums, the notes and the stop strings."""
        return {
            "shots": self.shots,
            "sources": [source.describe() for source in self.sources],
            "notes": list(self.notes),
            "task_stops": list(self.stops_for(chat)),
        }

    def generate(self, stream: str, index: int) -> Item:
        """Return item `index` of the test stream."""
        if stream != "test":
            raise unknown("stream", stream, ("test",))
        if not 0 <= index < self.size:
            raise RippleError(f"{self.name} has items 0 to {self.size - 1}, not {index}.")
        return self._items[index]

    def test_items(self, n: int | None = None) -> list[Item]:
        """Return the first n items in the publisher's order, by default all of them."""
        return list(self._items[: item_count(n, self.size)])

    def judge_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[Verdict]:
        """Return both marks of each response and what was taken for its answer."""
        raise NotImplementedError

    def score_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[bool]:
        """Score many responses by the headline mark."""
        return [verdict.right for verdict in self.judge_many(items, texts, workers)]

    def score(self, item: Item, text: str) -> bool:
        """Say whether a response is right by the headline mark."""
        return self.score_many([item], [text], workers=1)[0]

    def verdict(self, answers: Mapping[str, str], marks: Mapping[str, bool]) -> Verdict:
        """Return the verdict that the headline mark decides."""
        return Verdict(marks[self.headline], marks, answers)


class CodeBenchmark(Benchmark):
    """A benchmark whose responses are programs: it runs them in the sandbox, if the caller opted in."""

    runs_code = True
    timeout_s = CODE_TIMEOUT_S  # of processor time, so a slow machine passes fewer programs

    def __init__(
        self,
        sources: Sequence[DataFile],
        items: Sequence[Item],
        shots: int,
        notes: Sequence[str] = (),
        allow_code: bool = False,
    ):
        super().__init__(sources, items, shots, notes)
        self.allow_code = allow_code

    def program(self, item: Item, text: str, mark: str) -> sandbox.Program:
        """Return the program and the tests that decide a mark."""
        raise NotImplementedError

    def check_ready(self) -> None:
        """Refuse to go on unless the caller allowed the model's code to run."""
        if not self.allow_code:
            raise code_not_allowed(self.name)

    def judge_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[Verdict]:
        """Run each response's strict and flexible program."""
        outcomes = {mark: self._run(items, texts, mark, workers) for mark in MARKS}
        return [
            self.verdict(
                {mark: outcomes[mark][i].reason for mark in MARKS},
                {mark: outcomes[mark][i].passed for mark in MARKS},
            )
            for i in range(len(items))
        ]

    def score_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[bool]:
        """Run each response's headline program only, which is half of what `judge_many` runs."""
        return [outcome.passed for outcome in self._run(items, texts, self.headline, workers)]

    def _run(
        self, items: Sequence[Item], texts: Sequence[str], mark: str, workers: int
    ) -> list[sandbox.ProgramOutcome]:
        self.check_ready()
        programs = [self.program(item, text, mark) for item, text in paired(items, texts)]
        return sandbox.run_many(programs, workers, self.timeout_s)


def check_shots(name: str, shots: int | None, default: int, available: int) -> int:
    """Return how many worked examples to show, or say how many there are."""
    count = default if shots is None else shots
    if not 0 <= count <= available:
        raise RippleError(f"{name} can show 0 to {available} worked examples, not {count}.")
    return count
