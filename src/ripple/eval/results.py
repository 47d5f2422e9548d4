"""Result lines of the runner: read, checked and summed up. No torch here.

A file holds lines of two kinds, and may hold several runs. `environment`: what a run was made with.
`item`: one decoded and scored item; its `run` names the settings, its `environment` the line of that kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ripple.analysis.lines import Line, read_lines
from ripple.analysis.statistics import wilson
from ripple.errors import RippleError

_START = b'{"kind": "'  # how every line begins
_TEXT = ("run", "environment", "item", "digest", "task", "model", "decoder", "setting", "text", "finish")
_COUNTS = ("nfe", "nfe_normal", "nfe_lookahead", "rows", "new_tokens")
_SECONDS = ("seconds", "wall_seconds")


@dataclass(frozen=True)
class Summary:
    """A run in numbers: means are per item, speed is over the time spent decoding."""

    run: str
    model: str
    task: str
    decoder: str  # with the fields that differ from their defaults
    n: int
    n_right: int
    accuracy: float
    interval: tuple[float, float]  # Wilson, 95 %
    nfe: float
    nfe_normal: float
    nfe_lookahead: float
    rows: float
    new_tokens: float  # ours: up to and including the first end token
    tokens_per_second: float
    seconds: float  # spent decoding, over all the processes that worked on the run
    marks: dict[str, float] = field(default_factory=dict)  # accuracy by each mark, where the task has several
    tokens_fast_dllm: float | None = None  # by Fast-dLLM's count, where every line has it
    tokens_per_second_fast_dllm: float | None = None


def read_results(path: Path) -> list[Line]:
    """Read the lines of a result file and check them; a last line cut off by a kill is left out."""
    try:
        data = path.read_bytes()
        lines = read_lines(path)
    except UnicodeDecodeError:
        raise RippleError(f"{path} is not a result file: it is not text.") from None
    except OSError as error:
        raise RippleError(f"Cannot read the results {path}: {error.strerror}.") from None
    tail = data[data.rfind(b"\n") + 1 :]
    # A torn line of ours goes; the last line of somebody else's file must not.
    if not (tail.startswith(_START) or _START.startswith(tail)):
        raise RippleError(f"{path} is not a result file: its last line is not a result line.")
    seen: set[tuple[str, str]] = set()
    for number, line in enumerate(lines, start=1):
        if (wrong := _fault(line)) is not None:
            raise RippleError(f"{path} is not a file of `ripple eval`: entry {number} {wrong}.")
        if line["kind"] == "item":
            if (name := (line["run"], line["item"])) in seen:
                raise RippleError(f"{path}: item {line['item']} of run {line['run']} is there twice.")
            seen.add(name)
    return lines


def _fault(line: Any) -> str | None:
    """Say what is wrong with a line, or None."""
    if not isinstance(line, dict) or line.get("kind") not in ("environment", "item"):
        return "is neither an item nor an environment"
    if line["kind"] == "environment":
        return None if isinstance(line.get("run"), str) else "has no 'run'"
    wanted: tuple[tuple[Sequence[str], tuple[type, ...]], ...] = (
        (_TEXT, (str,)), (_COUNTS, (int,)), (_SECONDS, (int, float)),
    )  # fmt: skip
    for names, kinds in wanted:
        for name in names:
            value = line.get(name)
            if not isinstance(value, kinds) or isinstance(value, bool):
                return f"has no proper {name!r}"
    return None if isinstance(line.get("right"), bool) else "has no proper 'right'"


def read_run(name: str) -> list[Line]:
    """Return the item lines of one run, named `FILE`, or `FILE#RUN` where the file holds several."""
    path, run = Path(name), ""
    if not path.exists() and "#" in name:
        file, _, run = name.rpartition("#")
        path = Path(file)
    runs: dict[str, list[Line]] = {}
    for line in read_results(path):
        if line["kind"] == "item" and line["run"].startswith(run):
            runs.setdefault(line["run"], []).append(line)
    if not runs:
        raise RippleError(f"{path} holds no items{f' of run {run}' if run else ''}.")
    if len(runs) > 1:
        known = ", ".join(f"{key} ({rows[0]['setting']} on {rows[0]['task']})" for key, rows in runs.items())
        raise RippleError(f"{path} holds {len(runs)} runs; name one as {path}#RUN: {known}.")
    return next(iter(runs.values()))


def summarize(rows: Sequence[Line]) -> Summary:
    """Sum up the item lines of one run."""
    n, n_right = len(rows), sum(row["right"] for row in rows)
    if not n:
        raise RippleError("There are no items to sum up.")
    seconds = float(sum(row["wall_seconds"] for row in rows))
    first = rows[0]
    means = {name: sum(row[name] for row in rows) / n for name in _COUNTS}
    # Fast-dLLM's count is a re-tokenised text and may be missing; a mean over some rows would mislead.
    theirs = [count for row in rows if isinstance(count := row.get("tokens_fast_dllm"), int)]
    n_theirs = sum(theirs) if len(theirs) == n else None
    return Summary(
        run=first["run"],
        model=first["model"],
        task=first["task"],
        decoder=first["setting"],
        n=n,
        n_right=n_right,
        accuracy=n_right / n,
        interval=wilson(n_right, n),
        tokens_per_second=n * means["new_tokens"] / seconds if seconds else 0.0,
        seconds=seconds,
        marks=_marks(rows),
        tokens_fast_dllm=None if n_theirs is None else n_theirs / n,
        tokens_per_second_fast_dllm=n_theirs / seconds if n_theirs is not None and seconds else None,
        **means,
    )


def _marks(rows: Sequence[Line]) -> dict[str, float]:
    """Return the accuracy by each mark that every line carries."""
    names = [name for name in rows[0].get("marks", {}) if all(name in row.get("marks", {}) for row in rows)]
    return {name: sum(row["marks"][name] for row in rows) / len(rows) for name in names}
