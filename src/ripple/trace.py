"""Traces: one event per forward and per decision, as JSON lines; docs/trace.md documents the format."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ripple.errors import RippleError

VERSION = 1
KINDS = ("start", "forward", "commit", "revoke", "search", "branches", "text", "end")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to one request, `t` seconds after it was admitted."""

    kind: str
    t: float
    data: dict[str, Any]


def write_trace(path: str | Path, events: Iterable[Event]) -> None:
    """Write events as JSON lines; the file appears whole or not at all."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("w", encoding="utf-8") as file:
            for event in events:
                file.write(
                    json.dumps({"event": event.kind, "t": round(event.t, 6), **event.data}, allow_nan=False)
                    + "\n"
                )
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise RippleError(f"Cannot write the trace {path}: {error.strerror}.") from None


def read_trace(path: str | Path) -> list[Event]:
    """Read a trace and check that it is one this version understands."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise RippleError(f"Cannot read the trace {path}: {reason}.") from None
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            kind, t = record.pop("event"), float(record.pop("t"))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RippleError(f"{path}, line {number}: not a trace event.") from None
        if kind not in KINDS:
            raise RippleError(f"{path}, line {number}: unknown event {kind!r}; known: {', '.join(KINDS)}.")
        events.append(Event(kind, t, record))
    if not events or events[0].kind != "start":
        raise RippleError(f"{path}: a trace begins with a start event.")
    if events[0].data.get("v") != VERSION:
        raise RippleError(
            f"{path}: trace version {events[0].data.get('v')!r}, this ripple reads version {VERSION}."
        )
    return events
