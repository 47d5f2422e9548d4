"""A small random checkpoint with a tokenizer, and a way to run the command line inside the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ripple.cli import main
from ripple.models.random import write_random_checkpoint


class Done(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Done]


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
