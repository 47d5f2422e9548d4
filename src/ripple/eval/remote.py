"""A run on the workers of a cluster: its items are decoded there and scored here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ripple.engine.engine import Engine
from ripple.engine.result import Result
from ripple.errors import RippleError
from ripple.eval.decoding import raise_failures, response
from ripple.eval.facts import environment_line, run_facts
from ripple.eval.runner import TaskRun
from ripple.files import Line
from ripple.options import Options
from ripple.pool.cluster import Workers
from ripple.pool.decode import NumberedPrompt
from ripple.pool.worker import Recipe
from ripple.tasks import Item, Task


@dataclass(frozen=True)
class RemoteEvaluation(TaskRun):
    """A run whose facts were asked of a worker."""

    workers: Workers
    recipe: Recipe
    task: Task
    options: Options
    chat: bool
    told: tuple[Line, Line]  # facts and environment

    @classmethod
    def prepare(
        cls, workers: Workers, recipe: Recipe, task: Task, options: Options, model: str, chat: bool
    ) -> RemoteEvaluation:
        """Ask a worker what the run is, then return it."""
        told = workers.ask(recipe, partial(_describe, task, options, model, chat))
        return cls(workers, recipe, task, options, chat, told)

    @property
    def facts(self) -> Line:
        """Everything that determines what is decoded."""
        return self.told[0]

    @property
    def environment(self) -> Line:
        """Code, libraries and machine of one worker."""
        return self.told[1]

    def warm_up(self, item: Item) -> None:
        """Do nothing: no speed is told of workers that come and go."""

    def responses(self, items: Sequence[Item]) -> Iterator[tuple[int, Line]]:
        """Decode on the workers."""
        asked = [self.prompt(item) for item in items]
        prompts = (NumberedPrompt(i, one.prompt, one.options) for i, one in enumerate(asked))
        failures = []
        for i, outcome in self.workers.decode(self.recipe, prompts, partial(_response, self.stops)):
            if isinstance(outcome, RippleError):
                failures.append(f"{asked[i].name}: {outcome}")
            else:
                yield i, outcome
        raise_failures(failures)


def _describe(task: Task, options: Options, model: str, chat: bool, engine: Engine) -> tuple[Line, Line]:
    return run_facts(engine, task, options, model, chat), environment_line(engine)


def _response(stops: Sequence[str], engine: Engine, result: Result) -> Line:
    return response(engine, result, stops)
