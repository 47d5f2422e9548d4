"""A small random checkpoint, its engine, and files of short prompts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ripple
from ripple.batch.job import DecodeRows, Job, Tally, run
from ripple.batch.rows import InputRows
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.pool.decode import decode

HOW = {"decoder": "confidence", "length": 16}
Run = Callable[..., Tally]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("batch") / "llada"
    return write_random_checkpoint(folder, vocab_size=328, d_model=32, n_heads=2, d_ff=32)


@pytest.fixture(scope="session")
def engine(checkpoint: Path) -> Iterator[ripple.Engine]:
    engine = ripple.load(checkpoint, device="cpu", dtype="float32", max_batch=3)
    yield engine
    engine.close(drain=False)


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def prompts(n: int) -> list[dict[str, Any]]:
    return [{"id": f"r{i}", "prompt": f"{i} + {i} ="} for i in range(n)]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def job(tmp_path: Path, engine: ripple.Engine) -> Run:
    """Run a job on some rows with the session's engine, or with another way to decode."""

    def go(
        rows: Sequence[dict[str, Any]], way: DecodeRows | None = None, out: str = "out", **how: Any
    ) -> Tally:
        @contextmanager
        def engines() -> Iterator[DecodeRows]:
            yield way or partial(decode, engine)

        file = write(tmp_path / "prompts.jsonl", rows)
        table = HOW | how.pop("table", {})
        return run(Job(InputRows.open(file), tmp_path / out, table, {"model": "small"}, **how), engines)

    return go
