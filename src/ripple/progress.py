"""How far long work is: a bar with the time left on a terminal, a line on stderr now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

EVERY_S = 10.0  # between two lines


class Progress:
    """Progress of one piece of work; stdout stays free for its result.

    `total` and what is told by `update` are in any unit: items, or forwards where items differ much in cost.
    """

    def __init__(self, what: str, total: float, is_quiet: bool = False) -> None:
        self._what = what
        self._total = total
        self._done = 0.0
        self._before = 0.0  # done by an earlier run
        self._start = self._told_at = time.monotonic()
        self._bar: Any = None
        self._task: Any = None
        self._is_quiet = is_quiet

    def __enter__(self) -> Self:
        if not self._is_quiet and sys.stderr.isatty():
            self._start_bar()
        elif not self._is_quiet:
            self._print()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def skip(self, done: float) -> None:
        """Take note of what an earlier run has done; it took none of this run's time."""
        self._done += done
        self._before += done
        self._show("")

    def update(self, done: float = 1, note: str = "") -> None:
        """Take note of so much more that is done; `note` says what came of it."""
        self._done += done
        self._show(note)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False)
        elif not self._is_quiet:
            print(line, file=sys.stderr, flush=True)

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes if it goes on like this; None before anything is done."""
        fresh = self._done - self._before
        if fresh <= 0:
            return None
        return max(0.0, (time.monotonic() - self._start) / fresh * (self._total - self._done))

    def _show(self, note: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, note=note)
        elif not self._is_quiet and time.monotonic() - self._told_at >= EVERY_S:
            self._print(note)

    def _print(self, note: str = "") -> None:
        self._told_at = time.monotonic()
        left = self.seconds_left
        share = f"{self._what}: {100 * self._done / max(self._total, 1e-9):.0f} %"
        rest = "" if left is None else f", {left:.0f} s left"
        print(f"ripple: {share}{rest}{f', {note}' if note else ''}", file=sys.stderr, flush=True)

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, TextColumn("{task.fields[note]}"), console=Console(stderr=True))
        self._bar.start()
        self._task = self._bar.add_task(self._what, total=self._total, note="")
