"""`ripple view`: replay a trace in the terminal, or write it as a page for a browser."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ripple.cli.console import console, print_json
from ripple.cli.generate import ENDINGS
from ripple.errors import RippleError
from ripple.files import Line, check_output, read_lines
from ripple.trace import Event, read_trace
from ripple.view import Frame, draw_frame, draw_summary, frames, summary, visible
from ripple.viewer.blame import guilty_commit
from ripple.viewer.page import Run, write_page

if TYPE_CHECKING:
    from rich.console import Console

HELP = "replay a trace in the terminal, or write it as one HTML file"
LONGEST_PAUSE_S = 60.0  # between two forwards, at the slowest speed


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Declare the options of `ripple view`."""
    parser.add_argument(
        "traces",
        metavar="TRACE",
        nargs="+",
        help="a file that `ripple generate --trace` wrote; several with --html",
    )
    parser.add_argument(
        "--html", metavar="FILE", help="write one self-contained page; several traces race there"
    )
    parser.add_argument(
        "--blame", metavar="FILE", help="with --html: lines of `ripple bench blame`; marks the guilty commit"
    )
    parser.add_argument("--speed", type=float, default=8.0, help="forwards per second (default 8)")
    parser.add_argument("--frame", type=int, metavar="K", help="show the state after forward K only")
    parser.add_argument("--no-animation", action="store_true", help="show the last state and the summary")
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Replay the trace, or show one state of it."""
    if not args.speed > 0:
        raise RippleError(f"--speed must be above 0, got {args.speed}.")
    if args.json and args.frame is not None:
        raise RippleError("--json sums up the whole trace and --frame shows one state: give one of them.")
    if args.html is not None:
        return _write_page(args)
    if len(args.traces) > 1 or args.blame:
        raise RippleError("Several traces, and --blame, go with --html: the terminal shows one trace.")
    events = read_trace(args.traces[0])
    states, totals = frames(events), summary(events)
    if args.frame is not None and not 1 <= args.frame <= len(states):
        raise RippleError(f"--frame must lie in 1 ... {len(states)} for this trace, got {args.frame}.")
    if args.json:
        print_json(totals)
        return 0
    out = console()
    out.print(_title(events), style="dim", markup=False)
    if args.frame is not None:
        out.print(draw_frame(states[args.frame - 1], len(states)))
        return 0
    if out.is_terminal and not args.no_animation:
        _animate(out, states, args.speed)
    if states:
        out.print(draw_frame(states[-1], len(states)))
    out.print(draw_summary(totals))
    end = ENDINGS.get(totals["finish"], "cut off: it has no end event")
    out.print(f"{visible(args.traces[0])}: {end}", style="dim", markup=False, soft_wrap=True)
    return 0


def _write_page(args: argparse.Namespace) -> int:
    """Write the traces as one page."""
    check_output(args.html, "the page")
    traces = {path: read_trace(path) for path in dict.fromkeys(args.traces)}
    lines = _blame_lines(args.blame) if args.blame else []
    runs = [Run(events, blame=guilty_commit(events, lines)) for events in traces.values()]
    if args.blame and not any(run.blame for run in runs):
        raise RippleError(f"{args.blame} blames no commit of these traces.")
    write_page(args.html, runs)
    print(args.html)
    return 0


def _blame_lines(path: str) -> list[Line]:
    """Read the lines of `ripple bench blame`."""
    if not Path(path).is_file():
        raise RippleError(f"Cannot read the results {path}: there is no such file.")
    return read_lines(Path(path))


def _title(events: list[Event]) -> str:
    start = events[0].data
    prompt = f"{len(start['prompt'])} prompt tokens"
    names = ("length", "block", "cache", "lookahead", "seed", "temperature")
    settings = [f"{name} {start[name]}" for name in names]
    return visible(" · ".join([start["decoder"], prompt, *settings]))


def _animate(out: Console, states: list[Frame], speed: float) -> None:
    """Show one state after another; Ctrl-C skips to the last."""
    from rich.live import Live

    try:
        with Live(console=out, auto_refresh=False, transient=True) as live:
            for state in states:
                live.update(draw_frame(state, len(states)), refresh=True)
                time.sleep(min(1 / speed, LONGEST_PAUSE_S))
    except KeyboardInterrupt:
        return
