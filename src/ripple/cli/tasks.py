"""`ripple tasks`: lists the task families and shows samples of them."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from ripple.tasks import TASKS, Item, get_task
from ripple.tasks.base import STREAMS

HELP = "list the task families, or show samples of one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the subcommands `list` and `show`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="name the task families")
    listing.add_argument("--json", action="store_true", help="one JSON object per line")
    show = actions.add_parser("show", help="print samples of a family")
    show.add_argument("task", help=f"one of {', '.join(TASKS)}")
    show.add_argument("--n", type=int, default=3, help="how many samples (default 3)")
    show.add_argument("--start", type=int, default=0, help="index of the first one (default 0)")
    show.add_argument("--stream", choices=STREAMS, default="test", help="which stream (default test)")
    show.add_argument("--json", action="store_true", help="one JSON object per line, hidden tests included")


def run(args: argparse.Namespace) -> int:
    """Run `ripple tasks` and return its exit status."""
    if args.action == "list":
        for name, task in TASKS.items():
            summary = (type(task).__doc__ or "").strip().splitlines()[0]
            print(json.dumps({"name": name, "summary": summary}) if args.json else f"{name:<10} {summary}")
        return 0
    task = get_task(args.task)
    items = [task.generate(args.stream, index) for index in range(args.start, args.start + args.n)]
    for item in items:
        if args.json:
            print(json.dumps(asdict(item)))
        else:
            _show(item)
    return 0


def _show(item: Item) -> None:
    """Print one item, with a frame where rich is installed and the output is a terminal."""
    try:
        from rich.console import Console
        from rich.panel import Panel
        from rich.text import Text
    except ImportError:
        sys.stdout.write(f"--- {item.id} ({item.kind})\n{item.prompt}{item.solution}\n\n")
        return
    body = Text.assemble((item.prompt, "bold"), (item.solution, "green"))
    Console().print(Panel(body, title=f"{item.id}, {item.kind}", title_align="left"))
