"""Traces as one self-contained HTML file: the modules and style of `static/` in one page with the data."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ripple.files import write_whole
from ripple.trace import Event

STATIC = Path(__file__).parent / "static"
START = "file.js"  # the module that a file starts with
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.]+)";\n', re.MULTILINE)
_EMPTY = '<script type="application/json" id="runs">[]</script>'


@dataclass(frozen=True, slots=True)
class Run:
    """One run to show: its events and what is known of it beside them."""

    events: Sequence[Event]
    name: str = ""  # shown instead of the decoder's
    blame: int | None = None  # which commit cost the answer, from 1


def write_page(path: str | Path, runs: Sequence[Run]) -> None:
    """Write runs as one HTML file, which needs no other file and no network."""
    write_whole(path, page(runs), "the page")


def page(runs: Sequence[Run] = ()) -> str:
    """Return the page; without runs it is the frame that the playground puts them into."""
    data = json.dumps([_as_data(run) for run in runs], separators=(",", ":"), allow_nan=False)
    filled = f'<script type="application/json" id="runs">{_in_script(data)}</script>'
    return _frame().replace(_EMPTY, filled)


def _frame() -> str:
    html = (STATIC / "file.html").read_text(encoding="utf-8")
    style = (STATIC / "viewer.css").read_text(encoding="utf-8")
    return html.replace("/* STYLE */", style).replace("/* SCRIPT */", script(START))


def script(start: str) -> str:
    """Return a module and all that it imports as one module, what is imported first."""
    done: dict[str, str] = {}

    def visit(name: str) -> None:
        source = (STATIC / name).read_text(encoding="utf-8")
        for wanted in _IMPORT.findall(source):
            if wanted not in done:
                visit(wanted)
        done[name] = re.sub(r"^export ", "", _IMPORT.sub("", source), flags=re.MULTILINE)

    visit(start)
    return "\n".join(done.values())


def _as_data(run: Run) -> dict[str, Any]:
    events = [{"event": e.kind, "t": round(e.t, 6), **_short(e.data)} for e in run.events]
    return {"name": run.name, "blame": run.blame, "events": events}


def _short(value: Any) -> Any:
    """Round what is only looked at: five digits of a number are enough to draw it, and NaN draws nothing."""
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    if isinstance(value, list):
        return [_short(one) for one in value]
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    return value


def _in_script(data: str) -> str:
    """Escape what would end a script element or begin a comment in it."""
    return data.replace("<", "\\u003c")
