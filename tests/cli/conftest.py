"""A small random checkpoint with a tokenizer, and the command line: in the test, or as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ripple.cli import main
from ripple.models.random_checkpoint import write_random_checkpoint


class Done(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Done]

# What this suite holds to its promises; the others have tests of their own rooms.
COMMANDS = (
    "generate", "chat", "batch", "compare", "demo", "view", "bench", "check", "decoders", "caches", "models",
    "tasks", "completion",
)  # fmt: skip


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "llada"
    return write_random_checkpoint(folder, vocab_size=328, d_model=32, d_ff=64)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    def run(*argv: object) -> Done:
        capsys.readouterr()
        code = main([str(word) for word in argv])
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run


@pytest.fixture
def generate(cli: Cli, checkpoint: Path) -> Cli:
    """`ripple generate` on the small checkpoint, eight positions unless told otherwise."""

    def run(*argv: object) -> Done:
        length = () if "--length" in argv or "--config" in argv else ("--length", 8)
        return cli("generate", "--model", checkpoint, "--device", "cpu", *length, *argv)

    return run


def process(*argv: object, env: dict[str, str] | None = None, **how: Any) -> subprocess.CompletedProcess[Any]:
    """Run `ripple` as a process of its own."""
    how = {"capture_output": True, "timeout": 120} | how
    return subprocess.run(
        [sys.executable, "-m", "ripple", *map(_word, argv)], env=os.environ | (env or {}), **how
    )


def _word(word: object) -> str | bytes:
    return word if isinstance(word, bytes) else str(word)
