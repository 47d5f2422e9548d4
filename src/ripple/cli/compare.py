"""`ripple compare`: one prompt, several decoders: their cost in a table, and below it what each one wrote."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ripple.cli import options
from ripple.cli.console import console, print_json
from ripple.cli.generate import ENDINGS, add_prompt, counted, read_prompt, shown_text
from ripple.cli.running import open_engine
from ripple.errors import RippleError
from ripple.fields import split_specs
from ripple.options import LENGTH

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from ripple.engine.result import Result

HELP = "decode one prompt with several decoders"
DECODERS = "default,confidence,rps,glide"


@dataclass(frozen=True)
class DecoderRun:
    """What one decoder did; speed-ups are over the first decoder of the list."""

    decoder: str
    text: str
    tokens: int
    nfe: int
    nfe_normal: int
    nfe_lookahead: int
    canvases: int
    nfe_speedup: float
    seconds: float
    time_speedup: float
    first_difference: int | None  # response position; None where the tokens agree
    finish: str


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Declare the options of `ripple compare`."""
    add_prompt(parser)
    parser.add_argument(
        "--decoders",
        metavar="LIST",
        help=f"names, presets or name:field=value, with commas between (default {DECODERS})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_model(parser)
    options.add_options(parser, words, with_decoder=False)


def run(args: argparse.Namespace) -> int:
    """Decode the prompt with each decoder and print the comparison."""
    from ripple.eval.decoding import one_forward

    table = options.gather(args, "decoders")
    if "decoder" in table:
        raise RippleError(
            f"`ripple compare` takes decoders, a list, and no decoder, got {table['decoder']!r}."
        )
    specs = _specs(table.pop("decoders", DECODERS))
    every = [options.options_of(table | {"decoder": spec}) for spec in specs]
    prompt = read_prompt(args)
    with open_engine(table) as engine:
        names = [engine.decoder_of(one).describe() for one in every]
        engine.generate(prompt, one_forward(engine, every[0].length or LENGTH))
        results = [engine.generate(prompt, one) for one in every]
    runs = compared(names, results)
    if args.json:
        print_json({"decoders": [asdict(one) for one in runs]})
        return 0
    out = console()
    out.print(draw_table(runs))
    for part in _draw_texts(runs, results):
        out.print(part)
    return 0


def _specs(given: object) -> list[str]:
    """Return the decoders of a comma-separated list, or of a TOML list."""
    items = [given] if isinstance(given, str) else given
    if not isinstance(items, list) or not items or not all(isinstance(item, str) for item in items):
        raise RippleError(f"decoders must be names with commas between, or a list of them, got {given!r}.")
    return [spec for item in items for spec in split_specs(item)]


def compared(names: Sequence[str], results: Sequence[Result]) -> list[DecoderRun]:
    """Compare results with the first of them."""
    first = results[0]
    return [
        DecoderRun(
            decoder=name,
            text=result.text,
            tokens=len(result.new_tokens),
            nfe=result.nfe,
            nfe_normal=result.nfe_normal,
            nfe_lookahead=result.nfe_lookahead,
            canvases=result.canvases,
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


# -- what people see ------------------------------------------------------------------------------------


def draw_table(runs: Sequence[DecoderRun]) -> Table:
    """Draw what each decoder cost."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD)
    table.add_column("decoder", overflow="fold")
    for name in ("NFE", "speed-up", "seconds", "speed-up", "differs at"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in runs:
        place = "same" if one.first_difference is None else str(one.first_difference)
        numbers = (str(one.nfe), f"{one.nfe_speedup:.2f}x", f"{one.seconds:.3f}", f"{one.time_speedup:.2f}x")
        table.add_row(Text(one.decoder), *numbers, "-" if one is runs[0] else place)
    return table


def _draw_texts(runs: Sequence[DecoderRun], results: Sequence[Result]) -> Iterator[RenderableType]:
    """Yield what each decoder wrote, whole: long lines are wrapped, and code keeps its lines."""
    from rich.padding import Padding
    from rich.text import Text

    for one, result in zip(runs, results, strict=True):
        yield Text(f"{one.decoder}: {counted(one.tokens)}, {ENDINGS[one.finish]}", "bold")
        is_same = one is not runs[0] and one.first_difference is None
        text = f"(the same as {runs[0].decoder})" if is_same else shown_text(result)
        yield Padding(Text(text, overflow="fold"), (0, 0, 1, 2), expand=False)
