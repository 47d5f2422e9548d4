"""The live views in a real (pseudo) terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest


def in_terminal(*argv: object, columns: int = 100) -> tuple[int, str]:
    """Run `ripple` with a terminal as its stdout; return the exit code and all that it drew."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = os.environ | {"TERM": "xterm-256color", "OMP_NUM_THREADS": "1"}
    env = {name: value for name, value in env.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    command = [sys.executable, "-m", "ripple", *map(str, argv)]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    drawn = b""
    while True:
        try:
            part = os.read(master, 1 << 16)
        except OSError:  # Linux: the other end is closed
            break
        if not part:
            break
        drawn += part
    os.close(master)
    return process.wait(timeout=60), drawn.decode("utf-8", "replace")


def test_demo_quiet() -> None:
    code, drawn = in_terminal("demo", "--quiet", "--length", 32, "--per-family", 1)
    assert code == 0 and "solved" in drawn and "Where to go next" in drawn
    assert "replayed" not in drawn


@pytest.mark.slow
def test_demo_race() -> None:
    code, drawn = in_terminal("demo", "--length", 32, "--per-family", 1)
    assert code == 0 and "replayed" in drawn and "done, NFE 32" in drawn


def test_generate_watch(checkpoint: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    code, drawn = in_terminal(
        "generate", "hello", "--watch", "--model", checkpoint, "--length", 48, "--trace", trace
    )
    assert code == 0 and "normal forward" in drawn and "■ pivot" in drawn and "tokens/s" in drawn
    code, drawn = in_terminal("view", trace, "--speed", 500)
    assert code == 0 and "NFE 1 of" in drawn and "0 of 48 masked" in drawn and "\x1b[32m" in drawn
