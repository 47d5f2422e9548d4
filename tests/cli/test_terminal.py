"""The live views in a real (pseudo) terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

ROWS, COLUMNS = 24, 80


def in_terminal(*argv: object, interrupt_at: str | None = None) -> tuple[int, str]:
    """Run `ripple` with a terminal as its stdout; return the exit code and all that it drew.

    With `interrupt_at`, Ctrl-C is sent when that text has been drawn.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
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
        if interrupt_at is not None and interrupt_at.encode() in drawn:
            process.send_signal(signal.SIGINT)
            interrupt_at = None
    os.close(master)
    return process.wait(timeout=60), drawn.decode("utf-8", "replace")


def test_demo_race_and_table() -> None:
    """All four lanes of a race are on the screen at once, each below the other."""
    code, drawn = in_terminal("demo", "--length", 8, "--families", "words")
    assert code == 0 and "replayed" in drawn and "default: done, NFE 8" in drawn.replace("\x1b[1;32m", "")
    assert "solved" in drawn and "Where to go next" in drawn
    last = drawn.rpartition("replayed")[0].rpartition("default: ")[2]
    assert all(f"{name}: done, NFE " in last for name in ("confidence", "rps", "glide"))
    assert last.count("\n") < ROWS


def test_generate_watch(checkpoint: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    code, drawn = in_terminal(
        "generate", "hello", "--watch", "--model", checkpoint, "--length", 48, "--trace", trace
    )
    assert code == 0 and "normal forward" in drawn and "■ pivot" in drawn and "tokens/s" in drawn
    code, drawn = in_terminal("view", trace, "--speed", 500)
    assert code == 0 and "NFE 1 of" in drawn and "0 of 48 masked" in drawn and "\x1b[32m" in drawn


def test_ctrl_c_while_a_canvas_fills(checkpoint: Path) -> None:
    """The cursor comes back and nothing else is said."""
    argv = ("generate", "hello", "--watch", "--model", checkpoint, "--length", 900, "--decoder", "default")
    code, drawn = in_terminal(*argv, interrupt_at="NFE 2")
    assert code == 130 and "Traceback" not in drawn and "KeyboardInterrupt" not in drawn
    assert drawn.rstrip().endswith("\x1b[?25h") or "\x1b[?25h" in drawn[-200:]
