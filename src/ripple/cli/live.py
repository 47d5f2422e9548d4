"""Live views: a canvas that fills as its request is decoded, and several traces that race each other."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ripple.trace import Event
from ripple.view import Frame, PieceOf, Playback, draw_cells, draw_frame, draw_legend

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

FRAMES_PER_SECOND = 12
_BELOW = 3  # lines of a terminal that a race leaves for its legend, its clock and the cursor

Lane = tuple[str, list[Frame]]  # the name of a decoder and what it did


class LiveCanvas:
    """A canvas in the terminal that is told of events and redraws a few times a second."""

    def __init__(self, out: Console, piece: PieceOf) -> None:
        from rich.live import Live

        self._piece = piece
        self._playback: Playback | None = None
        self._drawn_at = 0.0
        self._live = Live(console=out, auto_refresh=False, transient=True)

    def on_event(self, event: Event) -> None:
        """Take in an event, and draw if it is time to."""
        if event.kind == "start":
            self._playback = Playback(event, self._piece)
        elif self._playback is not None:
            self._playback.feed(event)
        if time.perf_counter() - self._drawn_at >= 1 / FRAMES_PER_SECOND:
            self._draw()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._draw()
        self._live.stop()
        if self._playback is not None and kind is None:
            last = self._playback.frame()
            self._live.console.print(draw_cells(last), draw_legend(last), sep="\n")

    def _draw(self) -> None:
        if self._playback is not None:
            self._live.update(draw_frame(self._playback.frame()), refresh=True)
        self._drawn_at = time.perf_counter()


def race(out: Console, lanes: Sequence[Lane], seconds: float) -> None:
    """Replay several requests on one clock, one below the other; the slowest takes `seconds`."""
    from rich.live import Live

    slowest = max(frames[-1].t for _, frames in lanes)
    stretch = seconds / max(slowest, 1e-9)
    started = time.perf_counter()
    with Live(console=out, auto_refresh=False) as live:
        while True:
            clock = (time.perf_counter() - started) / stretch
            live.update(draw_race(out, lanes, clock, _pace(stretch), out.height), refresh=True)
            if clock >= slowest:
                return
            time.sleep(1 / FRAMES_PER_SECOND)


def photo_finish(out: Console, lanes: Sequence[Lane]) -> RenderableType:
    """Draw the race at the moment its winner is done."""
    clock = min(frames[-1].t for _, frames in lanes)
    return draw_race(out, lanes, clock, "as the first one is done")


def draw_race(
    out: Console, lanes: Sequence[Lane], clock: float, pace: str, height: int = 1 << 20
) -> RenderableType:
    """Draw every lane as it was `clock` seconds after its start; together they fit the height."""
    from rich.console import Group
    from rich.text import Text

    most = max(1, (height - _BELOW) // len(lanes) - 1)
    parts: list[RenderableType] = []
    for name, frames in lanes:
        shown = frames[max(0, bisect_right(frames, clock, key=lambda frame: frame.t) - 1)]
        is_done = clock >= frames[-1].t
        state = f"done, NFE {shown.nfe}, {shown.t:.3f} s" if is_done else f"NFE {shown.nfe}"
        parts.append(Text(f"{name}: {state}", "bold green" if is_done else "bold"))
        parts.append(_lines(out, shown, min(most, _n_lines(out, frames[-1]))))
    legend = draw_legend(*(frames[-1] for _, frames in lanes))
    return Group(*parts, legend, Text(f"{clock:.3f} s, {pace}", style="dim"))


def _lines(out: Console, frame: Frame, n: int) -> Text:
    """Draw a response on exactly n lines, so that the lanes keep their places."""
    from rich.text import Text

    lines = draw_cells(frame).wrap(out, out.width)
    if len(lines) > n:
        lines[n - 1].truncate(out.width - 1)
        lines[n - 1].append("…", "dim")
    return Text("\n").join([*lines[:n], *[Text()] * (n - len(lines))])


def _n_lines(out: Console, frame: Frame) -> int:
    return len(draw_cells(frame).wrap(out, out.width))


def _pace(stretch: float) -> str:
    times = f"{stretch:.1f} times slower" if stretch > 1 else f"{1 / stretch:.1f} times faster"
    return f"replayed {times} than it ran"
