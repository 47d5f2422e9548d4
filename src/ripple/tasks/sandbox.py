"""Runs a program that nobody has read, and says whether it reached its end.

Each program gets a fresh isolated interpreter (`-I -S -B`) in its own process group and an empty
temporary folder, with an empty environment. Before the program starts, the child lowers its own hard
limits (CPU time, address space, processes, file size 0, open files), leaves the network namespace where
the system permits it, and installs an audit hook that refuses sockets, new processes, writing or
removing files, signals and ctypes. The parent kills the whole group at the wall-clock limit. Standard
output goes nowhere, so a flood of it costs nothing; the verdict comes back on a pipe of its own, of
which only the first bytes are read.

A program passes only when it ran to its end: the verdict is written after its last line, so
`sys.exit(0)` or `os._exit(0)` halfway is a failure.

It protects against what a language model writes by accident: endless loops, runaway memory, fork bombs,
floods, stray files, calls to the network. It does not protect against somebody who attacks Python
itself: an audit hook is not a security boundary, files that the user may read can be read, the kernel's
process limit does not bind root (the hook still does), and a program that studies this file could forge
the verdict. Run hostile code in a virtual machine.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ripple.tasks._jail import PRELUDE

_VERDICT_BYTES = 4096  # what is read of the child's verdict
_START_S = 2.0  # extra wall time for the interpreter to start on a busy machine
_CODE_BYTES = 1 << 20  # a longer program is refused: it would not fit the limits either


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one program ended."""

    passed: bool
    reason: str  # "ok", "timeout", "stopped early", or the error in one line
    seconds: float  # wall time, interpreter start included


def run(code: str, timeout_s: float = 3.0, memory_mb: int = 512) -> Outcome:
    """Run one program under limits and say whether it reached its end."""
    started = time.monotonic()
    source = code.encode("utf-8", "replace")
    if len(source) > _CODE_BYTES:
        return Outcome(False, "program too long", 0.0)
    token = secrets.token_hex(8)
    head = f"{token} {timeout_s} {memory_mb}\n".encode()
    with tempfile.TemporaryDirectory(prefix="ripple-sandbox-") as folder:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", PRELUDE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={},
            start_new_session=True,
            bufsize=0,
        )
        try:
            said, late = _talk(child, head + source, timeout_s + _START_S)
        finally:
            _kill(child)
    seconds = time.monotonic() - started
    if late:
        return Outcome(False, "timeout", seconds)
    if child.returncode == -signal.SIGXCPU:
        return Outcome(False, "timeout", seconds)
    verdict = said.decode("utf-8", "replace")
    if verdict == f"{token} ok":
        return Outcome(True, "ok", seconds)
    if verdict.startswith(f"{token} "):
        return Outcome(False, verdict[len(token) + 1 :].splitlines()[0][:200], seconds)
    return Outcome(False, "stopped early", seconds)


def run_many(
    programs: Sequence[str], workers: int = 0, timeout_s: float = 3.0, memory_mb: int = 512
) -> list[Outcome]:
    """Run many programs in parallel; the same text is run once. `workers` 0 means one per core."""
    distinct = list(dict.fromkeys(programs))
    count = workers or os.cpu_count() or 1
    # Threads suffice: each only waits for its own child process.
    with ThreadPoolExecutor(max_workers=max(1, min(count, len(distinct) or 1))) as pool:
        outcomes = dict(
            zip(distinct, pool.map(lambda p: run(p, timeout_s, memory_mb), distinct), strict=True)
        )
    return [outcomes[program] for program in programs]


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
