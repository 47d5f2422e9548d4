"""Starts a sandbox for each program, waits for its verdict, and ends everything that it started."""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ripple.tasks.sandbox.wire import ValueWriter

_HERE = Path(__file__).parent
_FOLDERS = tuple(
    zip(
        ("ripple", "ripple.tasks", "ripple.tasks.sandbox"),
        map(str, (_HERE.parents[1], _HERE.parent, _HERE)),
        strict=True,
    )
)
WALLS = ("namespaces", "landlock", "seccomp", "hook")  # beside limits, which always hold
_START = f"""
import sys
for name, folder in {_FOLDERS!r}:  # packages without their own __init__: nothing of the rest is needed
    sys.modules[name] = type(sys)(name)
    sys.modules[name].__path__ = [folder]
import ripple.tasks.sandbox.child as child
child."""
_VERDICT_BYTES = 4096  # what is read of the child's verdict
_START_S = 4.0  # extra wall time, for a start on a busy machine; processor time has its own limit
_PROGRAM_BYTES = 1 << 20  # a longer program is refused: it would not fit the limits either


@dataclass(frozen=True, slots=True)
class Program:
    """What a model wrote, and the tests that judge it, which it never gets to see."""

    code: str
    tests: str = ""  # asserts; they run in another process and use what the code defines
    asked: tuple[str, ...] = ()  # names of builtins that the code was asked to define


@dataclass(frozen=True, slots=True)
class ProgramOutcome:
    """How one program ended."""

    passed: bool
    reason: str  # "ok", "timeout", "stopped early", or the error in one line
    seconds: float  # wall time, interpreter start included


def run(
    program: Program | str, timeout_s: float = 3.0, memory_mb: int = 512, walls: Sequence[str] = WALLS
) -> ProgramOutcome:
    """Run one program behind walls and under limits, and say whether it reached its end and passed its tests.

    Without tests the word of the program itself is all there is; with tests it cannot forge the outcome.
    """
    started = time.monotonic()
    if isinstance(program, str):
        program = Program(program)
    message = ValueWriter(_no_handle).encode((program.code, program.tests, program.asked))
    if len(message) > _PROGRAM_BYTES:
        return ProgramOutcome(False, "program too long", 0.0)
    with tempfile.TemporaryDirectory(prefix="ripple-sandbox-") as folder:
        child = _start("main()", folder, str(timeout_s), str(memory_mb), ",".join(walls))
        try:
            said, late = _talk(child, message, timeout_s + _START_S)
        finally:
            _kill(child)
    reason = "timeout" if late else said.decode("utf-8", "replace")[:200] or "stopped early"
    return ProgramOutcome(reason == "ok", reason, time.monotonic() - started)


def run_many(
    programs: Sequence[Program | str], workers: int = 0, timeout_s: float = 3.0, memory_mb: int = 512
) -> list[ProgramOutcome]:
    """Run many programs in parallel; the same one is run once. `workers` 0 means one per core."""
    _warn_of_missing_walls()
    distinct = list(dict.fromkeys(programs))
    count = workers or os.cpu_count() or 1
    # Threads suffice: each only waits for its own child process.
    with ThreadPoolExecutor(max_workers=max(1, min(count, len(distinct) or 1))) as pool:
        outcomes = dict(
            zip(distinct, pool.map(lambda p: run(p, timeout_s, memory_mb), distinct), strict=True)
        )
    return [outcomes[program] for program in programs]


def _no_handle(value: object) -> tuple[bytes, int]:
    raise TypeError(f"a {type(value).__name__} is no part of a program")


@functools.cache
def _warn_of_missing_walls() -> None:
    """Say once per process which promise does not hold on this system."""
    missing = missing_walls()
    if "seccomp" in missing or {"namespaces", "landlock"} <= missing.keys():
        reasons = "; ".join(f"{wall}: {reason}" for wall, reason in missing.items())
        warnings.warn(
            f"The sandbox stops accidents but not attacks on this system ({reasons}).", stacklevel=3
        )


def missing_walls() -> dict[str, str]:
    """Return the walls that this system does not permit, each with the reason."""
    with tempfile.TemporaryDirectory(prefix="ripple-sandbox-") as folder:
        said = _start("report()", folder).communicate()[0].decode()
    return dict(line.split(": ", 1) for line in said.splitlines())


def _start(call: str, folder: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a fresh interpreter with an empty environment, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", "-c", _START + call, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env={},
        start_new_session=True,
        bufsize=0,
    )


def _talk(child: subprocess.Popen[bytes], message: bytes, limit_s: float) -> tuple[bytes, bool]:
    """Send the program and read the verdict; the flag says whether time ran out first."""
    assert child.stdin is not None and child.stdout is not None
    deadline = time.monotonic() + limit_s
    try:
        child.stdin.write(message)
        child.stdin.close()
    except OSError:
        return b"", False  # the child died before it had read its program
    said = b""
    with selectors.DefaultSelector() as waiting:
        waiting.register(child.stdout, selectors.EVENT_READ)
        while len(said) < _VERDICT_BYTES:
            left = deadline - time.monotonic()
            if left <= 0 or not waiting.select(left):
                return said, True
            chunk = os.read(child.stdout.fileno(), _VERDICT_BYTES)
            if not chunk:
                break
            said += chunk
    return said, False


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End the child and everything it started, and collect it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        child.kill()
    child.wait()
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            stream.close()
