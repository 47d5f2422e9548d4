"""Small random checkpoints in released format, one per family, shared by the whole session."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"  # the suite runs GPU kernels on the CPU; must be set before Triton loads
os.environ.setdefault("OMP_NUM_THREADS", "1")  # workers share two cores with the processes that tests start

import shutil
import signal
from pathlib import Path

import pytest

import ripple
from ripple.models.random_checkpoint import write_random_checkpoint

EMBEDDED = Path(ripple.__file__).parent / "embedded"
FAMILIES = ("llada", "dream")
SMALL = {"vocab_size": 64, "d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 64}


def with_filter(folder: Path) -> Path:
    """Put a filter for the decoder learn2pd beside a checkpoint."""
    shutil.copy(EMBEDDED / "tiny-llada" / "filter.safetensors", folder)
    return folder


def pytest_configure() -> None:
    """Have processes that tests start hear Ctrl-C, which a shell has its background jobs ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Checkpoint folders by family; Dream has grouped queries."""
    root = tmp_path_factory.mktemp("checkpoints")
    return {
        "llada": with_filter(write_random_checkpoint(root / "llada", "llada", seed=3, **SMALL)),
        "dream": with_filter(write_random_checkpoint(root / "dream", "dream", seed=5, n_kv_heads=2, **SMALL)),
    }


@pytest.fixture(scope="session")
def engines(folders: dict[str, Path]) -> dict[str, ripple.Engine]:
    """Engines in fp32 on the CPU, by family."""
    return {family: ripple.load(folder, device="cpu", dtype="float32") for family, folder in folders.items()}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    """Run the test for both model families."""
    return str(request.param)


@pytest.fixture
def engine(engines: dict[str, ripple.Engine], family: str) -> ripple.Engine:
    """The engine of the family at hand."""
    return engines[family]
