"""Live views: a canvas that fills as its request is decoded, and several traces that race each other."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from ripple.trace import Event
from ripple.view import Frame, Pieces, Replay, draw_cells, draw_frame, draw_legend

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

FRAMES_PER_SECOND = 12
_NARROWEST = 36  # columns of one lane of a race


class LiveCanvas:
    """A canvas in the terminal that hears events and redraws a few times a second."""

    def __init__(self, out: Console, piece: Pieces) -> None:
        from rich.live import Live

        self._piece = piece
        self._replay: Replay | None = None
        self._drawn_at = 0.0
        self._live = Live(console=out, auto_refresh=False, transient=True)

    def hear(self, events: list[Event]) -> None:
        """Take in new events, and draw if it is time to."""
        for event in events:
            if event.kind == "start":
                self._replay = Replay(event, self._piece)
            elif self._replay is not None:
                self._replay.feed(event)
        if time.perf_counter() - self._drawn_at >= 1 / FRAMES_PER_SECOND:
            self._draw()

    def __enter__(self) -> LiveCanvas:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._draw()
        self._live.stop()
        if self._replay is not None and kind is None:
            self._live.console.print(draw_cells(self._replay.frame()), draw_legend(), sep="\n")

    def _draw(self) -> None:
        if self._replay is not None:
            self._live.update(draw_frame(self._replay.frame()), refresh=True)
        self._drawn_at = time.perf_counter()


def race(out: Console, lanes: Sequence[tuple[str, list[Frame]]], seconds: float) -> None:
    """Replay several requests side by side on one clock, stretched so that the slowest takes `seconds`."""
    from rich.live import Live

    slowest = max((frames[-1].t for _, frames in lanes if frames), default=0.0)
    stretch = seconds / max(slowest, 1e-9)
    started = time.perf_counter()
    with Live(console=out, auto_refresh=False) as live:
        while True:
            clock = (time.perf_counter() - started) / stretch
            live.update(_draw_race(out, lanes, clock, stretch), refresh=True)
            if clock >= slowest:
                return
            time.sleep(1 / FRAMES_PER_SECOND)


def photo_finish(out: Console, lanes: Sequence[tuple[str, list[Frame]]]) -> RenderableType:
    """Draw the race at the moment its winner is done."""
    clock = min(frames[-1].t for _, frames in lanes if frames)
    return _draw_race(out, lanes, clock, 1.0)


def _draw_race(
    out: Console, lanes: Sequence[tuple[str, list[Frame]]], clock: float, stretch: float
) -> RenderableType:
    """Draw every lane as it was `clock` seconds after its start."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    n_rows = -(-len(lanes) // max(1, out.width // _NARROWEST))
    n_columns = -(-len(lanes) // n_rows)  # rows of equal length where they can be
    width = out.width // n_columns - 4  # borders and padding of a panel
    n_lines = max((_n_lines(out, frames[-1], width) for _, frames in lanes if frames), default=1)
    panels: list[RenderableType] = []
    for name, frames in lanes:
        shown = frames[max(0, bisect_right(frames, clock, key=lambda frame: frame.t) - 1)]
        is_done = clock >= frames[-1].t
        state = f"done, NFE {shown.nfe}, {shown.t:.3f} s" if is_done else f"NFE {shown.nfe}"
        panels.append(
            Panel(
                draw_cells(shown),
                title=name,
                subtitle=state,
                height=n_lines + 2,
                border_style="green" if is_done else "bright_black",
            )
        )
    grid = Table.grid(expand=True)
    for _ in range(n_columns):
        grid.add_column(ratio=1)
    for start in range(0, len(panels), n_columns):
        grid.add_row(*panels[start : start + n_columns])
    pace = "as the first one is done"  # a still picture
    if stretch != 1:
        times = f"{stretch:.1f} times slower" if stretch > 1 else f"{1 / stretch:.1f} times faster"
        pace = f"replayed {times} than it ran"
    return Group(grid, draw_legend(), Text(f"{clock:.3f} s, {pace}", style="dim"))


def _n_lines(out: Console, frame: Frame, width: int) -> int:
    return len(draw_cells(frame).wrap(out, width))
