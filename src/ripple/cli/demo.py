"""`ripple demo`: four decoders race on a few problems of each family, and their answers are checked.

Each decoder decodes undisturbed; the race is a replay of what happened, slowed down and drawn side by side.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ripple.cli import options
from ripple.cli.console import console, print_json
from ripple.cli.live import photo_finish, race
from ripple.cli.running import decode, default_model, open_engine, warm_up
from ripple.decoders import Decoder
from ripple.engine.result import Result, Settings
from ripple.errors import RippleError
from ripple.tasks import TASKS, get_task
from ripple.tasks.base import Item
from ripple.view import frames

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ripple.engine.engine import Engine

HELP = "watch four decoders race on small problems and check their answers"
DECODERS = ("default", "confidence", "lopa", "rps")
LENGTHS = {"words": 96, "algebra": 96, "functions": 64, "programs": 128}  # what the answers need
PER_FAMILY = 2
RACE_SECONDS = 2.0
NEXT = (
    ("ripple bench decoders", "every decoder on these tasks, with intervals"),
    ("ripple tasks show words", "samples of the problems, to paste into `ripple generate --watch`"),
    ("ripple compare --model GSAI-ML/LLaDA-8B-Instruct --chat '...'", "the same on a large model"),
    ("ripple decoders", "every decoder and its settings"),
)


@dataclass(frozen=True)
class Row:
    """What one decoder did over all problems; speed-ups are over the first decoder."""

    decoder: str
    solved: int
    problems: int
    nfe: float  # mean forwards per problem
    nfe_speedup: float
    seconds: float  # mean per problem, one at a time
    time_speedup: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ripple demo`."""
    parser.add_argument("--quiet", action="store_true", help="no replay, only the table")
    parser.add_argument("--length", type=int, help="response positions (default 64 to 128, by family)")
    parser.add_argument(
        "--per-family",
        type=int,
        default=PER_FAMILY,
        metavar="N",
        help=f"problems each (default {PER_FAMILY})",
    )
    parser.add_argument("--families", default=",".join(TASKS), metavar="LIST", help="default: all four")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="also save what is shown as a picture")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_model(parser)


def run(args: argparse.Namespace) -> int:
    """Decode, replay, check, and close with the table."""
    if args.per_family < 1:
        raise RippleError(f"--per-family must be at least 1, got {args.per_family}.")
    table = options.gather(args)
    families = [get_task(name) for name in args.families.split(",")]
    out = None if args.json else console(record=args.svg is not None)
    use = [options.build(_preset(name, str(table.get("model", default_model())))) for name in DECODERS]
    every = {
        task.name: [
            options.settings({"length": LENGTHS[task.name]} | table, decoder, trace=True) for decoder in use
        ]
        for task in families
    }
    solved = [0] * len(use)
    results: list[list[Result]] = [[] for _ in use]
    with open_engine(table, say=out is None) as engine:
        if out is not None:
            out.print(
                f"[bold]ripple[/bold] decodes {args.per_family} problems of each family with four decoders."
            )
        for task in families:
            warm_up(engine, "Question:", every[task.name][0])
            for number, item in enumerate(task.test_items(args.per_family)):
                what = f"{task.name} {number + 1} of {args.per_family}"
                found = _decode_all(engine, item, every[task.name], out, what)
                right = [task.score(item, result.text) for result in found]
                for i, result in enumerate(found):
                    results[i].append(result)
                    solved[i] += right[i]
                if out is not None and number == 0:
                    _show(out, task.name, item, use, found, right, args.quiet)
    rows = _rows(use, results, solved)
    if out is None:
        print_json({"rows": [asdict(row) for row in rows]})
    else:
        _conclude(out, rows)
        if args.svg is not None:
            out.save_svg(str(args.svg), title="ripple demo")
    return 0


def _preset(name: str, model: str) -> str:
    """Name the paper's setting of RPS for the model's family."""
    return f"rps/{'dream' if 'dream' in model.lower() else 'llada'}" if name == "rps" else name


def _decode_all(
    engine: Engine, item: Item, every: Sequence[Settings], out: Console | None, what: str
) -> list[Result]:
    """Decode one problem with each decoder, showing which one is at work."""
    found = []
    for settings in every:
        if out is None or out.record or not out.is_terminal:
            found.append(decode(engine, item.prompt, settings))
            continue
        with out.status(f"{what}: {settings.decoder.name}"):
            found.append(decode(engine, item.prompt, settings))
    return found


def _show(
    out: Console, family: str, item: Item, use: Sequence[Decoder], found: Sequence[Result],
    right: Sequence[bool], quiet: bool,
) -> None:  # fmt: skip
    """Replay one problem, or print its prompt and who solved it."""
    from rich.text import Text

    out.rule(family)
    out.print(Text(item.prompt.strip()))
    lanes = [(d.name, frames(result.trace or [])) for d, result in zip(use, found, strict=True)]
    if out.record:
        out.print(photo_finish(out, lanes))
    elif out.is_terminal and not quiet:
        race(out, lanes, RACE_SECONDS)
    verdict = Text()
    for decoder, result, is_right in zip(use, found, right, strict=True):
        verdict.append(
            f"{decoder.name} {'✓' if is_right else '✗'} NFE {result.nfe}   ", "green" if is_right else "red"
        )
    out.print(verdict)


def _rows(use: Sequence[Decoder], results: Sequence[Sequence[Result]], solved: Sequence[int]) -> list[Row]:
    n = len(results[0])
    nfe = [sum(result.nfe for result in mine) / n for mine in results]
    seconds = [sum(result.seconds for result in mine) / n for mine in results]
    return [
        Row(d.describe(), solved[i], n, nfe[i], nfe[0] / nfe[i], seconds[i], seconds[0] / seconds[i])
        for i, d in enumerate(use)
    ]


def _conclude(out: Console, rows: Sequence[Row]) -> None:
    from rich.text import Text

    out.print(_draw(rows))
    out.print("NFE counts the forwards that were waited for; speed-ups are over default.", style="dim")
    out.print("\nWhere to go next:")
    for command, what in NEXT:
        out.print(Text(f"  {command}", "bold").append(f"\n      {what}", "not bold dim"), soft_wrap=True)


def _draw(rows: Sequence[Row]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    table.add_column("decoder", overflow="fold")
    for name in ("solved", "NFE", "speed-up", "seconds", "speed-up"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.decoder, f"{row.solved}/{row.problems}", f"{row.nfe:.1f}", f"{row.nfe_speedup:.2f}x",
            f"{row.seconds:.2f}", f"{row.time_speedup:.2f}x",
        )  # fmt: skip
    return table
