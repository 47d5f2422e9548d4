"""Fills a result file: measures what it lacks, line by line, until it is complete or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TypeVar

from ripple.errors import RippleError
from ripple.files import Line, append_line, check_folder, check_output, numbered_lines, truncate_partial_line
from ripple.progress import Progress

T = TypeVar("T", bound=Hashable)


def fill(
    out: Path, wanted: Sequence[T], key: Callable[[Line], T], measure: Callable[[T], Line], what: str,
    seconds: float = 0,
) -> int:  # fmt: skip
    """Measure what the file lacks, for at most `seconds` if given; return how many lines are new."""
    check_folder(out.parent, "the results' folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    check_output(out, "the results", is_appended=True)
    truncate_partial_line(out)
    done = {_key_of(line, key, f"{out}, line {number}", what) for number, line in numbered_lines(out)}
    todo = [one for one in wanted if one not in done]
    start, n_new = time.perf_counter(), 0
    with Progress(what, len(todo)) as progress:
        for one in todo:
            if seconds and time.perf_counter() - start > seconds:
                break
            line = measure(one)
            append_line(out, line)
            n_new += 1
            progress.update(note=" ".join(str(part) for part in (one if isinstance(one, tuple) else (one,))))
    return n_new


def _key_of(line: Line, key: Callable[[Line], T], where: str, what: str) -> T:
    """Return what a line is about; another measurement's line is refused before anything is measured."""
    try:
        made = key(line)
        hash(made)
    except (KeyError, TypeError):
        raise RippleError(f"{where}: not a line of these {what}; name another file.") from None
    return made
