"""`ripple eval`: a model on a task, one result line per item; a killed run goes on where it stopped."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ripple.analysis.lines import Line
from ripple.analysis.paired import Comparison, compare_lines
from ripple.cli import options
from ripple.cli.console import console, print_json, remark
from ripple.cli.running import default_model, open_engine
from ripple.errors import RippleError
from ripple.eval import find_task, task_facts
from ripple.eval.results import Summary, read_results, read_run, summarize

if TYPE_CHECKING:
    from rich.console import Console

    from ripple.eval.run import Progress

HELP = "score a model on a task, item by item, and compare two runs"
REMARK_S = 10.0  # how often --json tells on stderr how far it is


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ripple eval`."""
    parser.add_argument(
        "--task", help="words, algebra, functions, programs, gsm8k, math500, humaneval or mbpp"
    )
    parser.add_argument("--data", type=Path, metavar="PATH", help="a benchmark's files (default: the hub)")
    parser.add_argument(
        "--shots", type=int, metavar="N", help="worked examples (default: the papers' number)"
    )
    parser.add_argument("--shots-file", type=Path, metavar="FILE", help="worked examples for math500")
    parser.add_argument(
        "--allow-code", action="store_true", help="run code that the model wrote, in the sandbox"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N test items (default: all)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="result lines; run again to go on")
    parser.add_argument("--batch", type=int, metavar="N", help="items decoded together (8; on a GPU 64)")
    parser.add_argument("--chat", action="store_true", help="wrap prompts in the model's chat template")
    parser.add_argument(
        "--compare", nargs=2, metavar=("A", "B"),
        help="compare two runs on the same items; FILE, or FILE#RUN where a file holds several",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_model(parser)
    options.add_engine(parser)
    options.add_decoder(parser)


def run(args: argparse.Namespace) -> int:
    """Evaluate, or compare what was evaluated."""
    out = None if args.json else console()
    if args.compare is not None:
        if args.task is not None or args.out is not None:
            raise RippleError("--compare reads two result files and takes neither --task nor --out.")
        _compare(args.compare[0], args.compare[1], out)
        return 0
    for name in ("task", "out"):
        if getattr(args, name) is None:
            raise RippleError(f"Give --{name}, or two result files with --compare.")
    for name in ("limit", "batch"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise RippleError(f"--{name} must be at least 1, got {value}.")
    summary = _evaluate(args, out)
    if out is None:
        print_json(asdict(summary) | {"out": str(args.out)})
    else:
        _show_summary(out, summary, args.out)
    return 0


def _evaluate(args: argparse.Namespace, out: Console | None) -> Summary:
    from ripple.eval.decode import default_batch
    from ripple.eval.run import evaluate

    table = options.gather(args)
    task = find_task(args.task, args.data, args.shots, args.shots_file, args.allow_code)
    facts = task_facts(task, args.chat)
    for sentence in (*facts.get("sources", ()), *facts.get("notes", ())):
        remark(sentence)
    settings = options.settings(table, options.chosen_decoder(table))
    if args.out.exists():
        read_results(args.out)  # complain before a large model is loaded
    given = str(table.get("model", default_model()))
    # The folder's own name, so that no machine's paths get into a result file.
    model = Path(given).resolve().name if Path(given).is_dir() else given
    with open_engine(table) as engine:
        engine.max_batch = args.batch or default_batch(engine)
        with _progress(out, f"{task.name}, {settings.decoder.name}") as tell:
            try:
                return evaluate(
                    engine, task, settings, args.out, args.limit, model=model, chat=args.chat,
                    task_facts=facts, progress=tell,
                )  # fmt: skip
            except KeyboardInterrupt:
                remark(f"stopped; the same command goes on with what is missing in {args.out}.")
                raise


# -- progress -------------------------------------------------------------------------------------------


@contextmanager
def _progress(out: Console | None, what: str) -> Iterator[Progress]:
    """Give a function that shows items done, accuracy so far and the time left."""
    if out is None:
        yield _Remarks(what)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, TextColumn("left, {task.fields[right]} right"), console=out)
    with bar:
        shown, n_right = bar.add_task(what, total=None, right="none"), [0, 0]

        def tell(done: int, n: int, line: Line | None) -> None:
            if line is not None:
                n_right[0] += line["right"]
                n_right[1] += 1
            share = f"{100 * n_right[0] / n_right[1]:.0f} %" if n_right[1] else "none yet"
            bar.update(shown, total=n, completed=done, right=share)

        yield tell


class _Remarks:
    """Progress as a sentence on stderr now and then, which needs no rich and leaves stdout to the result."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.start = self.last = time.monotonic()
        self.n_before = 0

    def __call__(self, done: int, n: int, line: Line | None) -> None:
        now = time.monotonic()
        if line is None:
            self.start, self.n_before = now, done
        elif now - self.last >= REMARK_S:
            left = (now - self.start) / (done - self.n_before) * (n - done)
            remark(f"{self.what}: {done} of {n}, {left:.0f} s left.")
            self.last = now


# -- what is shown --------------------------------------------------------------------------------------


def _show_summary(out: Console, summary: Summary, path: Path) -> None:
    low, high = summary.interval
    shown = {
        "items": str(summary.n),
        "accuracy": f"{100 * summary.accuracy:.1f} %  (95 %: {100 * low:.1f} to {100 * high:.1f})",
    }
    if summary.marks:
        shown["by mark"] = ", ".join(f"{mark} {100 * share:.1f} %" for mark, share in summary.marks.items())
    theirs, speed = summary.tokens_fast_dllm, summary.tokens_per_second_fast_dllm
    shown |= {
        "NFE": f"{summary.nfe:.1f}  ({summary.nfe_normal:.1f} normal, {summary.nfe_lookahead:.1f} lookahead)",
        "rows": f"{summary.rows:.1f}",
        "tokens": f"{summary.new_tokens:.1f}" + _beside(theirs),
        "tokens per second": f"{summary.tokens_per_second:.1f}" + _beside(speed),
        "run": f"{summary.run} in {path}",
    }
    _print_table(out, f"{summary.task}, {summary.model}, {summary.decoder}", shown)


def _beside(theirs: float | None) -> str:
    """Return the same figure by Fast-dLLM's count of tokens, to stand behind ours."""
    return "" if theirs is None else f"  ({theirs:.1f} by Fast-dLLM's count)"


def _compare(a: str, b: str, out: Console | None) -> None:
    rows_a, rows_b = read_run(a), read_run(b)
    found = compare_lines(rows_a, rows_b)
    sides = [summarize(rows) for rows in (rows_a, rows_b)]
    if out is None:
        print_json(asdict(found) | {"a": asdict(sides[0]), "b": asdict(sides[1])})
        return
    _show_comparison(out, found, *sides)


def _show_comparison(out: Console, found: Comparison, a: Summary, b: Summary) -> None:
    low, high = found.interval
    verdict = "differ" if found.p < 0.05 else "no difference shown"
    shown: dict[str, Any] = {
        "a": f"{a.decoder}, {a.model}: {100 * found.accuracy_a:.1f} %, NFE {found.nfe_a:.1f}",
        "b": f"{b.decoder}, {b.model}: {100 * found.accuracy_b:.1f} %, NFE {found.nfe_b:.1f}",
        "b - a": f"{100 * found.difference:+.1f} points  (95 %: {100 * low:+.1f} to {100 * high:+.1f})",
        "solved by one alone": f"a {found.only_a}, b {found.only_b}",
        "exact McNemar": f"p = {found.p:.3g}: {verdict} at 5 %",
        "NFE, a over b": f"{found.nfe_a / found.nfe_b:.2f}" if found.nfe_b else "",
    }
    if found.left_out_a or found.left_out_b:
        shown["left out"] = f"{found.left_out_a} items that only a has, {found.left_out_b} that only b has"
    _print_table(out, f"{a.task}, {found.n} items in common", shown)


def _print_table(out: Console, title: str, rows: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", show_header=False)
    for name, value in rows.items():
        table.add_row(name, Text(str(value)))  # as text: decoder settings may look like markup
    out.print(table)
