"""Result lines: appended whole, read back, never half written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ripple.errors import RippleError

Line = dict[str, Any]


def append_line(path: Path, line: Line) -> None:
    """Append one JSON line that is on the disk, whole, when this returns; on failure nothing is added."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = (json.dumps(line, allow_nan=False) + "\n").encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        before = os.fstat(descriptor).st_size
        if os.write(descriptor, data) != len(data):  # the disk is full
            os.ftruncate(descriptor, before)
            raise RippleError(f"No room left on the disk to append to {path}.")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> list[Line]:
    """Read all whole lines; a last line that a killed run left unfinished is dropped."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    lines = []
    for number, row in enumerate(text.split("\n"), start=1):
        if not row:
            continue
        try:
            lines.append(json.loads(row))
        except ValueError:
            if number == text.count("\n") + 1:  # no newline behind it: cut off while it was written
                break
            raise RippleError(f"{path}, line {number}: not a result line.") from None
    return lines


def mend(path: Path) -> None:
    """Cut an unfinished last line off, so that the next line starts on its own."""
    if path.exists():
        data = path.read_bytes()
        if data and not data.endswith(b"\n"):
            with path.open("r+b") as file:
                file.truncate(data.rfind(b"\n") + 1)
