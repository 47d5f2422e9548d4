"""A small random checkpoint for workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ripple.models.random_checkpoint import write_random_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pool") / "llada"
    return write_random_checkpoint(folder, vocab_size=328, d_model=32, n_heads=2, d_ff=32)
