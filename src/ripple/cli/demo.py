"""`ripple demo`: four decoders race on a problem of each family, and their answers are checked.

Each decoder decodes undisturbed; the race is a replay of what happened, on one clock.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ripple.cli import options
from ripple.cli.compare import DECODERS
from ripple.cli.console import console, print_json
from ripple.cli.live import photo_finish, race
from ripple.cli.running import DEFAULT_MODEL, EXAMPLE, open_engine
from ripple.errors import RippleError
from ripple.files import check_output, write_whole
from ripple.options import LENGTH, Options
from ripple.tasks import TASKS, Item, check_code_allowed, get_task
from ripple.view import frames

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ripple.engine.engine import Engine
    from ripple.engine.result import Result
    from ripple.tasks import GeneratedTask

HELP = "watch four decoders race on small problems and check their answers"
LENGTHS = {"words": 96, "algebra": 96, "functions": 64, "programs": 128}  # what the answers need
PER_FAMILY = 1
RACE_SECONDS = 2.0
NEXT = (
    (f"ripple generate --watch '{EXAMPLE}'", "one problem, forward by forward"),
    ("ripple tasks show words", "more problems that the embedded models can solve"),
    ("ripple compare --model GSAI-ML/LLaDA-8B-Instruct --chat 'What is 7 * 8?'", "a large model"),
    ("ripple bench", "what can be measured: every decoder on these tasks, and more"),
    ("ripple decoders", "every decoder and its settings"),
)


@dataclass(frozen=True)
class DecoderScore:
    """What one decoder did over all problems; speed-ups are over the first decoder."""

    decoder: str
    solved: int
    problems: int
    nfe: float  # mean forwards per problem
    nfe_speedup: float
    seconds: float  # mean per problem, one at a time
    time_speedup: float


@dataclass(frozen=True)
class Round:
    """One problem, and what each decoder made of it."""

    item: Item
    results: list[Result]
    right: list[bool]


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
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
    parser.add_argument(
        "--allow-code", action="store_true", help="run code that a model of yours wrote, in the sandbox"
    )
    parser.add_argument("--svg", metavar="FILE", help="also save what is shown as a picture")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_model(parser)


def run(args: argparse.Namespace) -> int:
    """Decode, replay, check, and close with the table."""
    if args.per_family < 1:
        raise RippleError(f"--per-family must be at least 1, got {args.per_family}.")
    if args.svg is not None:
        if args.json:
            raise RippleError("--svg saves what --json does not draw: give one of them.")
        check_output(args.svg, "the picture")
    from ripple.eval.decoding import one_forward

    table = options.gather(args)
    tasks = _tasks(args.families, str(table.get("model", DEFAULT_MODEL)), args.allow_code)
    every = {task.name: _options(task.name, args) for task in tasks}
    out = None if args.json else console(record=args.svg is not None)
    rounds: list[Round] = []
    with open_engine(table, is_quiet=True) as engine:
        names = [engine.decoder_of(one).describe() for one in every[tasks[0].name]]
        if out is not None:
            out.print(
                f"[bold]ripple[/bold] decodes problems of {len(tasks)} families with {len(names)} decoders."
            )
        for task in tasks:
            engine.generate("Question:", one_forward(engine, every[task.name][0].length or LENGTH))
            for number, item in enumerate(task.test_items(args.per_family)):
                rounds.append(_round(engine, task, item, every[task.name], out))
                if out is not None and number == 0:
                    _show(out, task.name, names, rounds[-1], args.quiet)
    scores = _scores(names, rounds)
    if out is None:
        print_json({"decoders": [asdict(score) for score in scores]})
        return 0
    _conclude(out, scores)
    if args.svg is not None:
        write_whole(args.svg, out.export_svg(title="ripple demo"), "the picture")
    return 0


def _tasks(families: str, model: str, allow_code: bool) -> list[GeneratedTask]:
    """Return the families of a list; those that run code need permission for other models than ours."""
    from ripple.models.hub import embedded_models

    tasks = [get_task(name.strip()) for name in families.split(",")]
    for task in tasks:
        check_code_allowed(task, model, allow_code, embedded_models())
    return tasks


def _options(family: str, args: argparse.Namespace) -> list[Options]:
    """Return how each decoder decodes the problems of a family; traces are for the replay."""
    length = LENGTHS[family] if args.length is None else args.length
    return [Options(decoder, length, trace=not args.json) for decoder in DECODERS.split(",")]


def _round(
    engine: Engine, task: GeneratedTask, item: Item, every: Sequence[Options], out: Console | None
) -> Round:
    """Decode one problem with each decoder, showing which one is at work, and judge the answers."""
    results = []
    for one in every:
        if out is None or out.record or not out.is_terminal:
            results.append(engine.generate(item.prompt, one))
            continue
        with out.status(f"{item.id}: {one.decoder}"):
            results.append(engine.generate(item.prompt, one))
    texts = [result.text for result in results]
    return Round(item, results, task.score_many([item] * len(texts), texts))


def _scores(names: Sequence[str], rounds: Sequence[Round]) -> list[DecoderScore]:
    n = len(rounds)
    nfe = [sum(one.results[i].nfe for one in rounds) / n for i in range(len(names))]
    seconds = [sum(one.results[i].seconds for one in rounds) / n for i in range(len(names))]
    solved = [sum(one.right[i] for one in rounds) for i in range(len(names))]
    return [
        DecoderScore(name, solved[i], n, nfe[i], nfe[0] / nfe[i], seconds[i], seconds[0] / seconds[i])
        for i, name in enumerate(names)
    ]


# -- what people see ------------------------------------------------------------------------------------


def _show(out: Console, family: str, names: Sequence[str], played: Round, is_quiet: bool) -> None:
    """Print a problem, replay its race on a terminal, and say who solved it."""
    from rich.text import Text

    out.rule(family)
    out.print(Text(played.item.prompt.strip()))
    lanes = [(name, frames(result.trace or [])) for name, result in zip(names, played.results, strict=True)]
    if out.record:
        out.print(photo_finish(out, lanes))
    elif out.is_terminal and not is_quiet:
        race(out, lanes, RACE_SECONDS)
    verdict = Text()
    for name, result, is_right in zip(names, played.results, played.right, strict=True):
        sign, colour = ("✓", "green") if is_right else ("✗", "red")
        verdict.append(f"{name} {sign} NFE {result.nfe}   ", colour)
    out.print(verdict)


def _conclude(out: Console, scores: Sequence[DecoderScore]) -> None:
    from rich.text import Text

    out.print(_draw(scores))
    out.print("NFE counts the forwards that were waited for; speed-ups are over default.", style="dim")
    out.print("\nWhere to go next:")
    for command, what in NEXT:
        out.print(Text(f"  {command}", "bold").append(f"\n      {what}", "not bold dim"), soft_wrap=True)


def _draw(scores: Sequence[DecoderScore]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD)
    table.add_column("decoder", overflow="fold")
    for name in ("solved", "NFE", "speed-up", "seconds", "speed-up"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in scores:
        table.add_row(
            Text(one.decoder), f"{one.solved}/{one.problems}", f"{one.nfe:.1f}", f"{one.nfe_speedup:.2f}x",
            f"{one.seconds:.2f}", f"{one.time_speedup:.2f}x",
        )  # fmt: skip
    return table
