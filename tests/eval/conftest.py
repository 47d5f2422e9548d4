"""A small random checkpoint, and two tasks of short prompts whose verdicts are a fair mix."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import ripple
from ripple.eval.results import Summary
from ripple.eval.runner import Evaluation, evaluate
from ripple.files import Line, read_lines
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.tasks import Item, Task
from ripple.tasks.generated.base import Draft, GeneratedTask

CLOCKS = ("seconds", "engine_seconds")


class Parity(GeneratedTask):
    """Short prompts; right or wrong by a hash of the response, so that a random model gets about half."""

    name = "parity"

    def __init__(self, **facts: Any) -> None:
        self.groups: list[int] = []
        self.own_facts = facts

    def draft(self, rng: random.Random) -> Draft:
        return Draft("sum", f"{rng.randrange(1000)} + {rng.randrange(1000)} =", "0")

    def facts(self, chat: bool) -> dict[str, Any]:
        return self.own_facts

    def score(self, item: Item, text: str) -> bool:
        return hashlib.sha256(text.encode()).digest()[0] % 2 == 0

    def score_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[bool]:
        self.groups.append(len(items))
        return super().score_many(items, texts, workers)


class Coded(Parity):
    """The same, as code."""

    name = "coded"
    runs_code = True


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("eval") / "llada"
    return write_random_checkpoint(folder, vocab_size=328, d_model=32, n_heads=2, d_ff=32)


@pytest.fixture(scope="session")
def loaded(checkpoint: Path) -> ripple.Engine:
    return ripple.load(checkpoint, device="cpu", dtype="float32")


@pytest.fixture
def engine(loaded: ripple.Engine) -> Iterator[ripple.Engine]:
    loaded.max_batch = 4
    yield loaded
    assert loaded.n_live == loaded.n_waiting == 0, "a test left requests behind"


def go(
    engine: ripple.Engine,
    out: Path,
    limit: int | None = 12,
    task: Task | None = None,
    chat: bool = False,
    **how: Any,
) -> Summary:
    """Evaluate with small settings."""
    options = ripple.Options(**({"decoder": "confidence", "length": 16, "block": 8} | how))
    return evaluate(Evaluation(engine, task or Parity(), options, "small", chat), out, limit)


def rows(path: Path, *without: str) -> list[Line]:
    """The item lines sorted by run and item, clocks and the names in `without` left out."""
    kept = [
        {name: value for name, value in line.items() if name not in (*CLOCKS, *without)}
        for line in read_lines(path)
        if line["kind"] == "item"
    ]
    return sorted(kept, key=lambda line: (line["run"], line["item"]))
