"""`ripple compare`: one prompt, several decoders, side by side."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ripple.cli import options
from ripple.cli.console import console, print_json
from ripple.cli.generate import add_prompt, read_prompt
from ripple.cli.running import decode, open_engine, warm_up
from ripple.decoders import Decoder
from ripple.engine.result import Result

if TYPE_CHECKING:
    from rich.console import RenderableType

HELP = "decode one prompt with several decoders"
DECODERS = "default,confidence,lopa,rps"


@dataclass(frozen=True)
class Row:
    """What one decoder did; speed-ups are over the first decoder of the list."""

    decoder: str
    text: str
    tokens: int
    nfe: int
    nfe_normal: int
    nfe_lookahead: int
    rows: int
    nfe_speedup: float
    seconds: float
    time_speedup: float
    first_difference: int | None  # response position; None where the tokens agree
    finish: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ripple compare`."""
    add_prompt(parser)
    parser.add_argument(
        "--decoders",
        metavar="LIST",
        help=f"names, presets or name:field=value, with commas between (default {DECODERS})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_model(parser)
    options.add_engine(parser)


def run(args: argparse.Namespace) -> int:
    """Decode the prompt with each decoder and print the table."""
    table = options.gather(args, "decoders")
    prompt = read_prompt(args)
    use = _decoders(table.get("decoders", DECODERS))
    out = None if args.json else console()
    every = [options.settings(table, decoder) for decoder in use]
    with open_engine(table) as engine:
        warm_up(engine, prompt, every[0])
        results = [decode(engine, prompt, settings) for settings in every]
    found = rows([decoder.describe() for decoder in use], results)
    if out is None:
        print_json({"rows": [asdict(row) for row in found]})
    else:
        out.print(draw_rows(found))
    return 0


def rows(names: Sequence[str], results: Sequence[Result]) -> list[Row]:
    """Compare results with the first of them."""
    first = results[0]
    return [
        Row(
            decoder=name,
            text=result.text,
            tokens=len(result.new_tokens),
            nfe=result.nfe,
            nfe_normal=result.nfe_normal,
            nfe_lookahead=result.nfe_lookahead,
            rows=result.rows,
            nfe_speedup=first.nfe / max(result.nfe, 1),
            seconds=result.seconds,
            time_speedup=first.seconds / max(result.seconds, 1e-9),
            first_difference=first_difference(first.new_tokens, result.new_tokens),
            finish=result.finish,
        )
        for name, result in zip(names, results, strict=True)
    ]


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Return the first position where two responses differ, up to their end tokens."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return None if len(a) == len(b) else min(len(a), len(b))


def draw_rows(found: Sequence[Row], with_text: bool = True) -> RenderableType:
    """Draw the comparison as a table, and below it each text in as much of one line as fits."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from ripple.view import visible

    table = Table(box=SIMPLE_HEAD)
    table.add_column("decoder", overflow="fold")
    for name in ("NFE", "speed-up", "seconds", "speed-up", "differs at"):
        table.add_column(name, justify="right", no_wrap=True)
    lines = []
    for row in found:
        place = "same" if row.first_difference is None else str(row.first_difference)
        cells: list[RenderableType] = [
            Text(row.decoder),
            str(row.nfe),
            f"{row.nfe_speedup:.2f}x",
            f"{row.seconds:.3f}",
        ]
        table.add_row(*cells, f"{row.time_speedup:.2f}x", "-" if row is found[0] else place)
        line = Text(f"  {row.decoder}: ", "bold", no_wrap=True, overflow="ellipsis")
        lines.append(line.append(visible(row.text), "not bold"))
    return Group(table, *lines) if with_text else table


def _decoders(given: str | list[str]) -> list[Decoder]:
    """Build the decoders of a comma-separated list, or of a TOML list."""
    items = [given] if isinstance(given, str) else given
    return [options.build(spec) for item in items for spec in options.split_specs(item)]
