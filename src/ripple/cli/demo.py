"""`ripple demo`: four decoders race on one prompt, without a download.

No trained model is embedded yet, so the demo writes a small random one and says so.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from ripple.cli import options
from ripple.cli.compare import DECODERS, Row, draw_rows, rows
from ripple.cli.console import console, print_json
from ripple.cli.live import race
from ripple.cli.running import RANDOM_MODEL, decode, open_engine, warm_up
from ripple.engine.result import Result
from ripple.view import frames

if TYPE_CHECKING:
    from rich.console import Console

HELP = "watch four decoders race on one prompt"
PROMPT = "What is 7 * 8?"
LENGTH = 96
RACE_SECONDS = 5.0
NEXT = (
    ("ripple generate --watch 'Once upon a time'", "watch one prompt being decoded"),
    ("ripple compare --model GSAI-ML/LLaDA-8B-Instruct --chat '...'", "the same table, a real model"),
    ("ripple decoders", "every decoder and its settings"),
    ("ripple view trace.jsonl", "replay what `ripple generate --trace trace.jsonl` wrote"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ripple demo`."""
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", default=PROMPT, help=f"default: {PROMPT!r}")
    parser.add_argument("--quiet", action="store_true", help="no live view, only the table")
    parser.add_argument("--length", type=int, default=LENGTH, help=f"response positions (default {LENGTH})")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_model(parser)


def run(args: argparse.Namespace) -> int:
    """Decode with each decoder undisturbed, then replay all of them side by side."""
    table = options.gather(args)
    is_random = table.get("model") is None
    out = None if args.json else console()
    if out is not None:
        _introduce(out, args.prompt, is_random)
    names = DECODERS.split(",")
    every = [options.settings(table, options.build(name), trace=True) for name in names]
    with open_engine(table, say_random=out is None) as engine:
        warm_up(engine, args.prompt, every[0])
        results: list[Result] = [decode(engine, args.prompt, settings) for settings in every]
    found = rows(names, results)
    if out is None:
        print_json({"random_model": is_random, "rows": [asdict(row) for row in found]})
        return 0
    if out.is_terminal and not args.quiet:
        lanes = [(name, frames(result.trace or [])) for name, result in zip(names, results, strict=True)]
        race(out, lanes, RACE_SECONDS)
    _conclude(out, found, is_random)
    return 0


def _introduce(out: Console, prompt: str, is_random: bool) -> None:
    from rich.text import Text

    out.print("[bold]ripple[/bold] decodes one prompt four times. The decoders differ, the model does not.")
    if is_random:
        out.print(RANDOM_MODEL, style="yellow")
    out.print(Text("Prompt: ").append(prompt, "bold"))


def _conclude(out: Console, found: list[Row], is_random: bool) -> None:
    from rich.text import Text

    out.print(draw_rows(found, with_text=not is_random))
    out.print("NFE counts the forwards that were waited for; speed-ups are over default.", style="dim")
    out.print("\nWhere to go next:")
    for command, what in NEXT:
        out.print(Text(f"  {command}", "bold").append(f"\n      {what}", "not bold dim"), soft_wrap=True)
