"""`ripple paper`: the paper's tables and figures, run on a model and drawn beside the published numbers."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from ripple.cli.console import remark
from ripple.errors import RippleError

if TYPE_CHECKING:
    from ripple.paper.plan import Request

HELP = "run and draw the paper's tables and figures"
LIMIT = {"cpu": 2, "cuda": 200}  # items per task; a model from a folder gets all of them
LENGTH = {"cpu": 128, "cuda": 256}  # the paper's is 256
TIMED = {"cpu": 1, "cuda": 2}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ripple paper`."""
    parser.add_argument("--model", metavar="M", help="models, joined by commas (default: both embedded ones)")
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
    if not args.draw:
        from ripple.analysis.lines import read_lines
        from ripple.paper import plan, run

        request = _request(args)
        if args.plan:
            print(plan.describe(request, read_lines(args.out / run.LINES)))
            return 0
        try:
            n_new = run.run(request, args.out, args.workers, args.reuse)
        except KeyboardInterrupt:
            remark(f"stopped; the same command goes on with what is missing in {args.out}.")
            raise
        print(f"{n_new} new lines in {args.out / run.LINES}")
        if importlib.util.find_spec("matplotlib") is None:
            remark(
                "matplotlib is not installed here, so nothing was drawn; elsewhere, "
                f"`ripple paper --draw --out {args.out}` draws these lines."
            )
            return 0
    from ripple.paper.report import write

    print(write(args.out))
    return 0


def _request(args: argparse.Namespace) -> Request:
    from ripple.models.load import torch_device
    from ripple.paper import experiments, plan

    kind = torch_device(args.device).type
    names = args.model.split(",") if args.model else list(experiments.MODELS)
    # A folder's own name, so that no machine's paths get into a result file.
    models = {Path(name).resolve().name if Path(name).is_dir() else name: name for name in names}
    request = plan.Request(
        models=models,
        tasks=tuple(args.tasks.split(",") if args.tasks else experiments.MIRRORS),
        experiments=plan.chosen(args.only),
        limit=args.limit if args.limit is not None or args.data else LIMIT[kind],
        length=args.length if args.length is not None else LENGTH[kind],
        device=args.device,
        sweeps=args.sweeps or kind == "cuda",
        n_timed=args.timed if args.timed is not None else TIMED[kind],
        source=plan.Source(args.data, args.allow_code, args.chat),
    )
    plan.check(request)
    return request
