"""`ripple eval`: a model on a task, one result line per item; a killed run is resumed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ripple.cli.console import console, print_json, remark
from ripple.cli.options import add_model, add_options, gather, options_of
from ripple.cli.running import DEFAULT_MODEL, open_engine
from ripple.cli.workers import add_workers, cluster_of, recipe_of
from ripple.errors import RippleError
from ripple.eval.lines import check_results
from ripple.eval.results import RunComparison, Summary, compare, read_run, summarize
from ripple.tasks import check_code_allowed, find_task

if TYPE_CHECKING:
    from ripple.eval.runner import TaskRun

HELP = "score a model on a task, item by item, and compare two runs"


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str] = ()) -> None:
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
    parser.add_argument("--out", type=Path, metavar="FILE", help="result lines; run again to resume")
    parser.add_argument("--batch", type=int, metavar="N", help="items decoded together (8; on a GPU 64)")
    parser.add_argument("--chat", action="store_true", help="wrap prompts in the model's chat template")
    parser.add_argument(
        "--compare", nargs=2, metavar=("A", "B"),
        help="compare two runs on the same items; FILE, or FILE#RUN where a file holds several",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_workers(parser)
    add_model(parser)
    add_options(parser, words)


def run(args: argparse.Namespace) -> int:
    """Evaluate, or compare what was evaluated."""
    if args.compare is not None:
        if args.task is not None or args.out is not None:
            raise RippleError("--compare reads two result files and takes neither --task nor --out.")
        _compare(args.compare[0], args.compare[1], args.json)
        return 0
    for name in ("task", "out"):
        if getattr(args, name) is None:
            raise RippleError(f"Give --{name}, or two result files with --compare.")
    for name in ("limit", "batch"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise RippleError(f"--{name} must be at least 1, got {value}.")
    if not args.json:
        console()  # where rich is missing, that is told before the work
    summary = _evaluate(args)
    if args.json:
        print_json(asdict(summary) | {"out": str(args.out)})
    else:
        _show_summary(summary, args.out)
    return 0


def _evaluate(args: argparse.Namespace) -> Summary:
    from ripple.eval.facts import choose_model
    from ripple.eval.runner import evaluate
    from ripple.models.hub import embedded_models

    table = gather(args)
    task = find_task(args.task, args.data, args.shots, args.shots_file, args.allow_code)
    given = str(table.get("model", DEFAULT_MODEL))
    check_code_allowed(task, given, args.allow_code, embedded_models())
    options = options_of(table)
    check_results(args.out)  # before a large model is loaded
    model = choose_model(given).name
    facts = task.facts(args.chat)
    for sentence in (*facts.get("sources", ()), *facts.get("notes", ())):
        remark(sentence)
    with _opened(args, table) as prepare:
        try:
            return evaluate(prepare(task, options, model, args.chat), args.out, args.limit, is_quiet=False)
        except KeyboardInterrupt:
            remark(f"stopped; the same command resumes with what is missing in {args.out}.")
            raise


@contextmanager
def _opened(args: argparse.Namespace, table: Mapping[str, Any]) -> Iterator[Callable[..., TaskRun]]:
    """Load the model, here or on the workers of a cluster, and return what makes a run of it."""
    cluster = cluster_of(args)
    if cluster is not None:
        from ripple.eval.remote import RemoteEvaluation

        with cluster.joined() as workers:
            yield partial(RemoteEvaluation.prepare, workers, recipe_of(workers, table, args.batch))
        return
    from ripple.eval.decoding import default_batch
    from ripple.eval.runner import Evaluation

    with open_engine(table) as engine:
        engine.max_batch = args.batch or default_batch(engine)
        yield partial(Evaluation, engine)


def _show_summary(summary: Summary, path: Path) -> None:
    low, high = summary.interval
    shown = {
        "items": str(summary.n),
        "accuracy": f"{100 * summary.accuracy:.1f} %  (95 %: {100 * low:.1f} to {100 * high:.1f})",
    }
    if summary.marks:
        shown["by mark"] = ", ".join(f"{mark} {100 * share:.1f} %" for mark, share in summary.marks.items())
    shown |= {
        "NFE": f"{summary.nfe:.1f}  ({summary.nfe_normal:.1f} normal, {summary.nfe_lookahead:.1f} lookahead)",
        "canvases": f"{summary.canvases:.1f}",
        "tokens": f"{summary.new_tokens:.1f}" + _beside(summary.tokens_fast_dllm),
        "tokens per second": f"{summary.tps:.1f}" + _beside(summary.tps_fast_dllm),
        "run": f"{summary.run} in {path}",
    }
    _print_table(f"{summary.task}, {summary.model}, {summary.setting}", shown)


def _beside(theirs: float | None) -> str:
    """Return the same figure by Fast-dLLM's count of tokens, to stand behind ours."""
    return "" if theirs is None else f"  ({theirs:.1f} by Fast-dLLM's count)"


def _compare(a: str, b: str, as_json: bool) -> None:
    run_a, run_b = read_run(a), read_run(b)
    comparison = compare(run_a, run_b)
    sides = summarize(run_a), summarize(run_b)
    if as_json:
        print_json(asdict(comparison) | {"a": asdict(sides[0]), "b": asdict(sides[1])})
    else:
        _show_comparison(comparison, *sides)


def _show_comparison(both: RunComparison, a: Summary, b: Summary) -> None:
    low, high = (100 * end for end in both.interval)
    fewer, more = both.nfe_interval
    verdict = "differ" if both.p < 0.05 else "no difference shown"
    shown: dict[str, Any] = {
        "a": f"{a.setting}, {a.model}: {100 * both.accuracy_a:.1f} %, NFE {both.nfe_a:.1f}",
        "b": f"{b.setting}, {b.model}: {100 * both.accuracy_b:.1f} %, NFE {both.nfe_b:.1f}",
        "b - a": f"{100 * both.difference:+.1f} points  (95 %: {low:+.1f} to {high:+.1f})",
        "solved by one alone": f"a {both.only_a}, b {both.only_b}",
        "exact McNemar": f"p = {both.p:.3g}: {verdict} at 5 %",
        "NFE, b - a": f"{both.nfe_b - both.nfe_a:+.1f}  (95 %: {fewer:+.1f} to {more:+.1f})",
        "NFE, a over b": f"{both.nfe_a / both.nfe_b:.2f}" if both.nfe_b else "",
    }
    if both.left_out_a or both.left_out_b:
        shown["left out"] = f"{both.left_out_a} items that only a has, {both.left_out_b} that only b has"
    _print_table(f"{a.task}, {both.n} items in common", shown)


def _print_table(title: str, rows: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", show_header=False)
    for name, value in rows.items():
        table.add_row(name, Text(str(value)))  # as text: decoder settings may look like markup
    console().print(table)
