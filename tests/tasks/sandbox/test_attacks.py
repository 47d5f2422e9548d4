"""What hostile programs try, and what stops them: `attacks.py`, `forgeries.py`, docs/sandbox.md."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ripple.tasks.sandbox import Program, missing_walls, run
from tests.tasks.sandbox.attacks import OUTSIDE
from tests.tasks.sandbox.forgeries import FORGERIES, PARTICULAR, RIGHT, TESTS

MISSING = missing_walls()
if sys.platform == "linux" and ctypes.CDLL(None).syscall(444, None, 0, 1) < 6:  # its version
    MISSING.setdefault("landlock", "it knows no signals and sockets before its version 6")
CASES = [
    pytest.param(
        name,
        wall,
        marks=[pytest.mark.skipif(wall in MISSING, reason=f"{wall}: {MISSING.get(wall)}")],
        id=f"{name}, {wall} alone",
    )
    for name, (_, walls) in OUTSIDE.items()
    for wall in walls
]


@dataclass
class World:
    """Everything outside the sandbox that an attack aims at."""

    folder: Path
    victim: subprocess.Popen[bytes]
    server: socket.socket
    abstract: socket.socket
    name: str
    secret: ctypes.Array[ctypes.c_char]

    def facts(self) -> list[object]:
        """What must be the same after every attack."""
        pid = self.victim.pid
        return [
            self.victim.poll(),
            os.getpriority(os.PRIO_PROCESS, pid),
            os.sched_getaffinity(pid),
            sorted((path.name, path.stat().st_mode, path.stat().st_mtime) for path in self.folder.iterdir()),
            (self.folder / "kept").read_text(),
            [
                path
                for place in ("/dev/shm", os.path.dirname(os.__file__))
                for path in Path(place).glob(f"{self.name}*")
            ],
        ]

    def names(self) -> str:
        """The names under which an attack finds its targets."""
        return (
            f"FOLDER, NAME = {str(self.folder)!r}, {self.name!r}\n"
            f"VICTIM, PARENT, PORT = {self.victim.pid}, {os.getpid()}, {self.server.getsockname()[1]}\n"
            f"ADDRESS = {ctypes.addressof(self.secret)}\n"
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("folder")
    (folder / "kept").write_text("x")
    (folder / "base-journal").write_text("x")
    name = f"ripple-{secrets.token_hex(4)}"
    environment = {**os.environ, "RIPPLE_SECRET": "1"}
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment) as victim,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        if sys.platform == "linux":
            abstract.bind("\0" + name)
            abstract.listen()
        yield World(folder, victim, server, abstract, name, ctypes.create_string_buffer(8))
        victim.kill()


@pytest.mark.parametrize(("name", "wall"), CASES)
def test_each_wall_alone_stops_the_attacks_it_is_said_to_stop(world: World, name: str, wall: str) -> None:
    before = world.facts()
    outcome = run(world.names() + OUTSIDE[name][0], timeout_s=2.0, walls=[wall])
    assert not outcome.passed and world.facts() == before, outcome
    assert outcome.reason != "timeout" and "NameError" not in outcome.reason, outcome
    assert "AttributeError" not in outcome.reason and "SyntaxError" not in outcome.reason, outcome


@pytest.mark.parametrize("name", OUTSIDE)
def test_all_walls_together_stop_every_attack(world: World, name: str) -> None:
    before = world.facts()
    outcome = run(world.names() + OUTSIDE[name][0], timeout_s=2.0)
    assert not outcome.passed and world.facts() == before, outcome


def test_the_attacks_work_where_nothing_stops_them(world: World) -> None:
    """Otherwise the table would prove nothing; a few harmless ones are let through."""
    for name in (
        "list a folder of the user",
        "the parent's environment",
        "the environment of a process of the user",
        "fork",
        "connect",
        "an abstract socket",
    ):
        outcome = run(world.names() + OUTSIDE[name][0], walls=[])
        assert outcome.passed, (name, outcome)


@pytest.mark.parametrize("wall", [wall for wall in ("namespaces", "seccomp") if wall not in MISSING])
def test_a_daemon_does_not_outlive_its_program(wall: str) -> None:
    daemon = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(60)"
    )
    mark = f"2.{secrets.randbelow(10**12)}"  # the time limit is among a sandbox's arguments
    run(daemon, timeout_s=float(mark), walls=[wall])
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            assert mark.encode() not in process.read_bytes()


def test_a_right_program_passes_the_tests_that_the_forgers_meet() -> None:
    for tests in (TESTS, *(tests for _, tests in PARTICULAR.values())):
        assert run(Program(RIGHT, tests)).passed, tests


@pytest.mark.parametrize("name", [*FORGERIES, *PARTICULAR])
@pytest.mark.parametrize(
    "walls", [["namespaces", "landlock", "seccomp", "hook"], []], ids=["walls", "no walls"]
)
def test_no_program_forges_its_verdict(name: str, walls: list[str]) -> None:
    code, tests = PARTICULAR[name] if name in PARTICULAR else (FORGERIES[name], TESTS)
    outcome = run(Program(code, tests), timeout_s=2.0, walls=walls)
    assert not outcome.passed and outcome.reason != "timeout", outcome
