"""A small random checkpoint, and two tasks of short prompts whose verdicts are a fair mix."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ripple
from ripple.analysis.lines import Line, read_lines
from ripple.eval.results import Summary
from ripple.eval.run import evaluate
from ripple.models.random import write_random_checkpoint
from ripple.tasks.base import Draft, Family, Item

CLOCKS = ("seconds", "wall_seconds")


class Parity(Family):
    """Short prompts; right or wrong by a hash of the response, so that a random model gets about half."""

    name = "parity"
    tests = ""

    def __init__(self) -> None:
        self.groups: list[int] = []

    def draft(self, rng: random.Random) -> Draft:
        return Draft("sum", f"{rng.randrange(1000)} + {rng.randrange(1000)} =", "0", tests=self.tests)

    def score(self, item: Item, text: str) -> bool:
        return hashlib.sha256(text.encode()).digest()[0] % 2 == 0

    def score_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[bool]:
        self.groups.append(len(items))
        return super().score_many(items, texts, workers)


class Coded(Parity):
    """The same, as code."""

    name = "coded"
    tests = "assert True"


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("eval") / "llada"
    return write_random_checkpoint(folder, vocab_size=328, d_model=32, n_heads=2, d_ff=32)


@pytest.fixture
def engine(checkpoint: Path) -> ripple.Engine:
    return ripple.load(checkpoint, device="cpu", dtype="float32", max_batch=4)


def go(engine: ripple.Engine, out: Path, limit: int = 12, task: Family | None = None, **how: Any) -> Summary:
    """Evaluate with small settings."""
    given = {name: how.pop(name) for name in ("progress", "chat", "task_facts") if name in how}
    settings = ripple.Settings(**({"decoder": ripple.Confidence(), "length": 16, "block": 8} | how))
    return evaluate(engine, task or Parity(), settings, out, limit, model="small", **given)


def rows(path: Path, *without: str) -> list[Line]:
    """The item lines sorted by run and item, clocks and the names in `without` left out."""
    kept = [
        {name: value for name, value in line.items() if name not in (*CLOCKS, *without)}
        for line in read_lines(path)
        if line["kind"] == "item"
    ]
    return sorted(kept, key=lambda line: (line["run"], line["item"]))
