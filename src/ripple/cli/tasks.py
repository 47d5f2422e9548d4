"""`ripple tasks`: lists the tasks, or shows samples of one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from ripple.cli.console import console
from ripple.errors import RippleError
from ripple.tasks import BENCHMARKS, TASKS, Item, find_task
from ripple.tasks.generated.base import STREAMS

HELP = "list the tasks, or show samples of one"
N = 3  # samples shown
ACTIONS = ("list", "show")


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Declare the options of `ripple tasks`."""
    parser.usage = "ripple tasks [list | [show] NAME] [options]"
    parser.add_argument("words", nargs="*", metavar="NAME", help=f"one of {', '.join((*TASKS, *BENCHMARKS))}")
    parser.add_argument("--n", type=int, help=f"how many samples (default {N})")
    parser.add_argument("--start", type=int, help="index of the first one (default 0)")
    parser.add_argument("--stream", help=f"{' or '.join(STREAMS)} (default test; benchmarks have no other)")
    parser.add_argument("--data", type=Path, metavar="PATH", help="a benchmark's files (default: the hub)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line, hidden tests included")


def run(args: argparse.Namespace) -> int:
    """Run `ripple tasks` and return its exit status."""
    name = _name(args.words)
    if name is not None:
        for item in _samples(name, args):
            if args.json:
                print(json.dumps(asdict(item)))
            else:
                _show(item)
        return 0
    for option in ("n", "start", "stream", "data"):
        if getattr(args, option) is not None:
            raise RippleError(
                f"--{option} is about samples of one task: name it, as in `ripple tasks words`."
            )
    _list(args.json)
    return 0


def _name(words: list[str]) -> str | None:
    """Return the task whose samples are wanted; None for the list of tasks."""
    action, names = (words[0], words[1:]) if words[:1] and words[0] in ACTIONS else ("", words)
    if len(names) > (0 if action == "list" else 1):
        raise RippleError(f"Unexpected argument {names[-1]!r}. `ripple tasks` shows one task at a time.")
    if action == "show" and not names:
        raise RippleError("`ripple tasks show` needs the name of a task, as in `ripple tasks show words`.")
    return names[0] if names else None


def _samples(name: str, args: argparse.Namespace) -> Iterator[Item]:
    n, start = N if args.n is None else args.n, args.start or 0
    if n < 1:
        raise RippleError(f"--n must be at least 1, got {n}.")
    if start < 0:
        raise RippleError(f"--start must be 0 or more, got {start}.")
    task = find_task(name, args.data, allow_code=True)  # to read it; nothing is run here
    for index in range(start, start + n):
        yield task.generate(args.stream or "test", index)


def _list(as_json: bool) -> None:
    """Print one line per task."""
    for heading, tasks in (("Generated families", TASKS), ("Published benchmarks", BENCHMARKS)):
        if not as_json:
            print(heading)
        for name, task in tasks.items():
            if as_json:
                kind = "generated" if name in TASKS else "published"
                facts = {"name": name, "kind": kind, "runs_code": task.runs_code, "summary": task.summary}
                print(json.dumps(facts))
            else:
                print(f"  {name:<10} {task.summary}")


def _show(item: Item) -> None:
    """Print one item: the prompt bold, the solution green."""
    from rich.panel import Panel
    from rich.text import Text

    body = Text.assemble((item.prompt, "bold"), (item.solution, "green"))
    console().print(Panel(body, title=f"{item.id}, {item.kind}", title_align="left"))
