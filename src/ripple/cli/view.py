"""`ripple view`: replay a trace in the terminal."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from ripple.cli.console import console, print_json
from ripple.errors import RippleError
from ripple.trace import Event, read_trace
from ripple.view import Frame, draw_frame, draw_summary, frames, summary

if TYPE_CHECKING:
    from rich.console import Console

HELP = "replay a trace, each commit in the colour of its cause"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ripple view`."""
    parser.add_argument("trace", metavar="TRACE", help="a file that `ripple generate --trace` wrote")
    parser.add_argument("--speed", type=float, default=8.0, help="forwards per second (default 8)")
    parser.add_argument("--frame", type=int, metavar="K", help="show the state after forward K only")
    parser.add_argument("--no-animation", action="store_true", help="show the last state and the summary")
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Replay the trace, or show one state of it."""
    if not args.speed > 0:
        raise RippleError(f"--speed must be above 0, got {args.speed}.")
    events = read_trace(args.trace)
    try:
        states, totals = frames(events), summary(events)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise RippleError(f"{args.trace}: an event lacks or garbles a field ({error!r}).") from None
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
    return 0


def _title(events: list[Event]) -> str:
    start = events[0].data
    prompt = f"{len(start['prompt'])} prompt tokens"
    names = ("length", "block", "cache", "lookahead", "seed", "temperature")
    settings = [f"{name} {start[name]}" for name in names if name in start]
    return " · ".join([start["decoder"], prompt, *settings])


def _animate(out: Console, states: list[Frame], speed: float) -> None:
    """Show one state after another; Ctrl-C skips to the last."""
    from rich.live import Live

    try:
        with Live(console=out, auto_refresh=False, transient=True) as live:
            for state in states:
                live.update(draw_frame(state, len(states)), refresh=True)
                time.sleep(1 / speed)
    except KeyboardInterrupt:
        return
