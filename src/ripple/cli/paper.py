"""`ripple paper`: the paper's tables and figures, run on a model and drawn beside the published numbers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ripple.analysis.plots import NEEDS, can_draw
from ripple.cli.console import remark
from ripple.cli.workers import make_cluster, shared_path
from ripple.errors import RippleError
from ripple.measurement import listed

if TYPE_CHECKING:
    from ripple.paper.plan import ReportOptions
    from ripple.pool.cluster import Workers

HELP = "run and draw the paper's tables and figures"
LIMIT = {"cpu": 2, "cuda": 200}  # items per task; a model from a folder gets all of them
LENGTH = {"cpu": 128, "cuda": 256}  # the paper's is 256
TIMED = {"cpu": 1, "cuda": 2}


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str] = ()) -> None:
    """Declare the options of `ripple paper`."""
    parser.add_argument("--model", metavar="M", help="models, joined by commas (default: the embedded ones)")
    parser.add_argument(
        "--only", metavar="NAMES", help="experiments, joined by commas (default: all; --plan lists them)"
    )
    parser.add_argument(
        "--tasks", metavar="NAMES", help="tasks, joined by commas (default: the four families)"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="the published benchmarks' files")
    parser.add_argument(
        "--allow-code", action="store_true", help="run code that a model wrote, in the sandbox"
    )
    parser.add_argument("--chat", action="store_true", help="wrap prompts in the model's chat template")
    parser.add_argument(
        "--limit", type=int, metavar="N", help="items per task (2; on a GPU 200; benchmarks: all)"
    )
    parser.add_argument(
        "--length", type=int, metavar="N", help="base length; half and twice it are run too (128; GPU: 256)"
    )
    parser.add_argument(
        "--timed", type=int, metavar="N", help="requests decoded one by one for each speed (1; on a GPU 2)"
    )
    parser.add_argument("--sweeps", action="store_true", help="sweep the baselines on a CPU too")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:N or auto")
    parser.add_argument("--workers", type=int, default=1, metavar="W", help="processes that share the device")
    parser.add_argument("--ray", action="store_true", help="W workers of a Ray cluster in their place")
    parser.add_argument(
        "--gpus-per-worker", metavar="N", help="with --ray: GPUs of each (1 where there are any)"
    )
    parser.add_argument(
        "--address", metavar="A", help="with --ray: local, auto, HOST:PORT or ray://HOST:PORT"
    )
    parser.add_argument(
        "--reuse", type=Path, nargs="+", default=[], metavar="FILE", help="result lines to take over"
    )
    parser.add_argument("--out", type=Path, default=Path("paper"), metavar="DIR", help="the report's folder")
    parser.add_argument("--plan", action="store_true", help="say what would be run, and run nothing")
    parser.add_argument(
        "--draw", action="store_true", help="only draw the report from the lines in --out again"
    )


def run(args: argparse.Namespace) -> int:
    """Run what is missing, then draw the report."""
    if args.workers < 1:
        raise RippleError(f"--workers must be at least 1, got {args.workers}.")
    from ripple.eval.sweep import raise_failures
    from ripple.paper import run

    failures: list[RippleError] = []
    lines = args.out / run.LINES
    if not args.draw:
        from ripple.eval.lines import check_results, read_results
        from ripple.paper import plan

        with _workers(args) as workers:
            options = _options(args, workers)
            if args.plan:
                run.reusable(args.reuse)
                print(plan.describe(options, read_results(lines)))
                return 0
            check_results(lines)
            try:
                n_new, failures = run.run(options, args.out, workers, args.reuse)
            except KeyboardInterrupt:
                remark(f"stopped; the same command resumes with what is missing in {args.out}.")
                raise
        if not lines.exists():
            raise_failures(failures, lines)
        print(f"{n_new} new lines in {lines}")
    from ripple.paper.report import write

    print(write(args.out))
    if not can_draw():
        remark(f"no figure was drawn, which {NEEDS}; then `ripple paper --draw --out {args.out}` draws them.")
    raise_failures(failures, lines)
    return 0


@contextmanager
def _workers(args: argparse.Namespace) -> Iterator[int | Workers]:
    """Return how many processes share the device, or the workers of a cluster."""
    if not args.ray:
        if args.gpus_per_worker is not None or args.address is not None:
            raise RippleError("--gpus-per-worker and --address go with --ray.")
        yield args.workers
        return
    with make_cluster(str(args.workers), args.gpus_per_worker, args.address).joined() as workers:
        yield workers


def _options(args: argparse.Namespace, workers: int | Workers) -> ReportOptions:
    from ripple.eval.facts import choose_model
    from ripple.eval.sweep import TaskSource
    from ripple.models.hub import embedded_models
    from ripple.models.load import torch_device
    from ripple.paper import experiments, plan

    if isinstance(workers, int):
        kind, data = torch_device(args.device).type, args.data
    else:
        kind, data = "cuda" if workers.gpus else "cpu", args.data and args.data.absolute()
    named = listed(args.model or "")
    models = [choose_model(name) for name in named or sorted(embedded_models(), reverse=True)]
    if not named:  # tiny-llada's tables come first; the paper is about models that see the whole canvas
        models = [model for model in models if not model.attends_by_block]
    options = plan.ReportOptions(
        models=tuple(model._replace(given=shared_path(model.given)) for model in models),
        tasks=tuple(listed(args.tasks or "") or experiments.MIRRORS),
        experiments=plan.chosen(args.only),
        limit=args.limit if args.limit is not None or args.data else LIMIT.get(kind, LIMIT["cpu"]),
        length=args.length if args.length is not None else LENGTH.get(kind, LENGTH["cpu"]),
        device=args.device,
        sweeps=args.sweeps or kind == "cuda",
        n_timed=args.timed if args.timed is not None else TIMED.get(kind, TIMED["cpu"]),
        source=TaskSource(data, args.allow_code, args.chat),
    )
    plan.check(options)
    return options
