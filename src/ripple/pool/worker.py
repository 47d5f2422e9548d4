"""What runs on a worker: an engine that decodes blocks of rows, or one call."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from ripple.engine.engine import Engine
from ripple.engine.load import load
from ripple.engine.result import Result
from ripple.errors import RippleError
from ripple.pool.decode import NumberedPrompt, decode

FATAL = -1  # the number of an outcome that is nobody's
RowBlock = dict[str, list[Any]]
T = TypeVar("T")


class Recipe(NamedTuple):
    """How a worker gets its engine."""

    model: str
    arguments: Mapping[str, Any]  # of `ripple.load`
    batch: int  # rows decoded together

    def open(self) -> Engine:
        """Load the engine."""
        return load(self.model, max_batch=self.batch, **self.arguments)


Keep = Callable[[Engine, Result], Any]  # what a worker sends home of a result


def without_tokenizer(engine: Engine, result: Result) -> Result:
    """Return a result as it can be sent: without its model's tokenizer."""
    return replace(result, tokenizer=None)


class Worker:
    """One engine, in a process of its own; called by several threads at a time, a block of rows each.

    What no row is to blame for is sent home as an outcome, since an exception would be told with all of Ray
    around it.
    """

    def __init__(self, recipe: Recipe, keep: Keep) -> None:
        self._keep = keep
        self._has_decoded = False
        self._error: Exception | None = None
        try:
            self._engine = recipe.open()
        except Exception as error:
            self._error = error

    def __call__(self, block: Mapping[str, Any]) -> RowBlock:
        """Decode a block of rows."""
        from ray.cloudpickle import dumps, loads

        if self._error is not None:
            return _fatal("cannot load the model", self._error)
        prompts = [
            NumberedPrompt(int(number), *loads(asked))
            for number, asked in zip(block["number"], block["asked"], strict=True)
        ]
        try:
            outcomes = list(decode(self._engine, prompts))
        except RippleError as error:
            if self._has_decoded:  # so its device broke: a new process gets a fresh start, or another device
                os._exit(1)
            return _fatal("cannot decode", error)
        self._has_decoded = True
        kept = [
            outcome if isinstance(outcome, RippleError) else self._keep(self._engine, outcome)
            for _, outcome in outcomes
        ]
        return {"number": [number for number, _ in outcomes], "outcome": [dumps(one) for one in kept]}


def _fatal(what: str, error: Exception) -> RowBlock:
    """Return the block that ends the job."""
    from ray.cloudpickle import dumps

    return {"number": [FATAL], "outcome": [dumps(_said(what, error))]}


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns, or an error in one sentence."""
    try:
        return function(*arguments)
    except Exception as error:
        return _said("failed", error)


def answer(recipe: Recipe, question: Callable[[Engine], T]) -> T:
    """Return what a question says of a worker's engine."""
    return question(recipe.open())


def _said(what: str, error: Exception) -> RippleError:
    kind = "" if isinstance(error, RippleError) else f"{type(error).__name__}: "
    return RippleError(f"A worker on {platform.node()} {what}: {kind}{first_line(error)}.")


def first_line(error: BaseException) -> str:
    """Return what an error says, as part of a sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
