"""What every published benchmark shares: rows from files, the `Task` protocol, and two marks per response.

A benchmark gives each response two marks. `strict` wants exactly the asked-for form; `flexible` looks for
the answer wherever it stands. Which of the two the papers report differs by benchmark: `headline` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ripple.tasks.sandbox as sandbox
from ripple.benchmarks.data import Source
from ripple.errors import RippleError, unknown
from ripple.tasks.base import Item

MARKS = ("strict", "flexible")
CODE_TIMEOUT_S = 3.0  # what the harness's code metric allows one program


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one response is worth, and why."""

    right: bool  # the headline mark
    marks: Mapping[str, bool]  # "strict" and "flexible"
    found: Mapping[str, str]  # what each rule took for the answer; for code, how the program ended


def cut(text: str, stops: Sequence[str]) -> str:
    """Cut a response at its stop strings, one stop after the other as the harness's models do."""
    for stop in stops:
        if stop:
            text = text.split(stop, 1)[0]
    return text


class Benchmark:
    """A published benchmark: fixed rows instead of generated ones, otherwise a task like any other."""

    name = ""
    headline = "flexible"
    default_shots = 0
    runs_code = False
    stops: tuple[str, ...] = ()

    def __init__(
        self, sources: Sequence[Source], items: Sequence[Item], shots: int, notes: Sequence[str] = ()
    ):
        self.sources = tuple(sources)  # the files that were read, with their checksums
        self.shots = shots
        self.notes = tuple(notes)  # sentences that a report must carry
        self._items = tuple(items)

    def __len__(self) -> int:
        return len(self._items)

    def stops_for(self, chat: bool) -> tuple[str, ...]:
        """Return the stop strings to cut at, given whether the prompt is wrapped in a chat template."""
        return self.stops

    def check_ready(self) -> None:
        """Refuse early, before any generation, what scoring would refuse later."""

    def generate(self, stream: str, index: int) -> Item:
        """Return item `index`; a benchmark has only the test stream."""
        if stream != "test":
            raise unknown("stream", stream, ("test",))
        if not 0 <= index < len(self._items):
            raise RippleError(f"{self.name} has items 0 to {len(self._items) - 1}, not {index}.")
        return self._items[index]

    def test_items(self, n: int | None = None) -> list[Item]:
        """Return the first n items in the publisher's order, by default all of them."""
        if n is not None and n < 0:
            raise RippleError(f"The number of items must be 0 or more, not {n}.")
        return list(self._items[:n])

    def score(self, item: Item, text: str) -> bool:
        """Say whether a response is right by the headline mark."""
        return self.score_many([item], [text], workers=1)[0]

    def score_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[bool]:
        """Score many responses by the headline mark."""
        return [verdict.right for verdict in self.details(items, texts, workers)]

    def details(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[Verdict]:
        """Return both marks of each response and what was taken for its answer."""
        raise NotImplementedError

    def verdict(self, found: Mapping[str, str], marks: Mapping[str, bool]) -> Verdict:
        """Put the marks together; the headline one decides."""
        return Verdict(marks[self.headline], marks, found)


class CodeBenchmark(Benchmark):
    """A benchmark whose responses are programs: it runs them in the sandbox, if the caller opted in."""

    runs_code = True
    timeout_s = CODE_TIMEOUT_S  # of processor time, so a slow machine passes fewer programs

    def __init__(
        self,
        sources: Sequence[Source],
        items: Sequence[Item],
        shots: int,
        notes: Sequence[str] = (),
        allow_code: bool = False,
    ):
        super().__init__(sources, items, shots, notes)
        self.allow_code = allow_code

    def program(self, item: Item, text: str, mark: str) -> str:
        """Return the whole program whose success decides a mark."""
        raise NotImplementedError

    def check_ready(self) -> None:
        """Refuse to go on unless the caller allowed the model's code to run."""
        if not self.allow_code:
            raise RippleError(
                f"{self.name} is scored by running code that a model wrote, in a sandbox that is no "
                "security boundary: allow it with allow_code=True (--allow-code)."
            )

    def score_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[bool]:
        """Run each response's headline program only, which is half of what `details` runs."""
        return [outcome.passed for outcome in self._run(items, texts, self.headline, workers)]

    def details(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[Verdict]:
        """Run each response's strict and flexible program."""
        ends = {mark: self._run(items, texts, mark, workers) for mark in MARKS}
        return [
            self.verdict(
                {mark: ends[mark][i].reason for mark in MARKS}, {mark: ends[mark][i].passed for mark in MARKS}
            )
            for i in range(len(items))
        ]

    def _run(
        self, items: Sequence[Item], texts: Sequence[str], mark: str, workers: int
    ) -> list[sandbox.Outcome]:
        self.check_ready()
        programs = [self.program(item, text, mark) for item, text in zip(items, texts, strict=True)]
        return sandbox.run_many(programs, workers, self.timeout_s)


def check_shots(name: str, shots: int | None, default: int, available: int) -> int:
    """Return how many worked examples to show, or say how many there are."""
    wanted = default if shots is None else shots
    if not 0 <= wanted <= available:
        raise RippleError(f"{name} can show 0 to {available} worked examples, not {wanted}.")
    return wanted
