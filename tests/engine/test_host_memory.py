"""How much memory keys may take on a machine whose system caches files, or in a container with a limit."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from ripple.engine import host_memory

MEMINFO = "MemTotal: 100 kB\nMemFree: 7 kB\nMemAvailable: 60 kB\n"


@pytest.fixture(autouse=True)
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system whose files a test writes."""
    (tmp_path / "meminfo").write_text(MEMINFO)
    monkeypatch.setattr(host_memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(host_memory, "CGROUP", tmp_path)
    return tmp_path


def limit(system: Path, most: str, used: int, of_files: int) -> None:
    (system / "memory.max").write_text(f"{most}\n")
    (system / "memory.current").write_text(f"{used}\n")
    (system / "memory.stat").write_text(f"anon 5\nfile {of_files}\n")


def test_caches_of_files_count_as_free() -> None:
    assert host_memory.available_bytes() == 60 * 1024


@pytest.mark.parametrize(
    ("most", "used", "of_files", "left"),
    [
        ("50000", 30000, 10000, 30000),
        ("max", 30000, 0, 60 * 1024),
        ("10000", 30000, 0, 0),
        ("90000", 0, 0, 60 * 1024),
    ],
)
def test_a_containers_limit_counts_too(system: Path, most: str, used: int, of_files: int, left: int) -> None:
    limit(system, most, used, of_files)
    assert host_memory.available_bytes() == left


def test_a_system_that_says_nothing_sets_no_limit(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (system / "meminfo").write_text("MemTotal: many\n")
    assert 0 < host_memory.available_bytes() < math.inf, "free pages"
    monkeypatch.setattr("os.sysconf", lambda name: (_ for _ in ()).throw(ValueError(name)))
    assert host_memory.available_bytes() == math.inf
