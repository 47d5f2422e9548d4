"""`ripple batch`: a file of prompts becomes a file of responses; a killed job is resumed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ripple.cli.console import print_json, remark
from ripple.cli.options import MODEL, add_model, add_options, gather, load_arguments, options_of
from ripple.cli.running import DEFAULT_MODEL, open_engine
from ripple.cli.workers import add_workers, cluster_of, recipe_of
from ripple.errors import RippleError

if TYPE_CHECKING:
    from ripple.batch.job import DecodeRows
    from ripple.pool.cluster import Cluster

HELP = "decode a file of prompts into a file of responses; run again to resume"


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str] = ()) -> None:
    """Declare the options of `ripple batch`."""
    parser.add_argument(
        "--input", type=Path, metavar="FILE",
        help="JSON lines or Parquet: id, prompt or messages, and perhaps options, an object like --config's",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder of the results")
    parser.add_argument("--format", default="jsonl", metavar="NAME", help="jsonl or parquet (default jsonl)")
    parser.add_argument("--chat", action="store_true", help="wrap text prompts in the model's chat template")
    parser.add_argument("--batch", type=int, metavar="N", help="rows decoded together (8; on a GPU 64)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_workers(parser)
    add_model(parser)
    add_options(parser, words)


def run(args: argparse.Namespace) -> int:
    """Run the job, or what is left of it."""
    for name in ("input", "output"):
        if getattr(args, name) is None:
            raise RippleError(f"Give --{name}.")
    if args.batch is not None and args.batch < 1:
        raise RippleError(f"--batch must be at least 1, got {args.batch}.")
    from ripple.batch.job import Job
    from ripple.batch.job import run as run_job
    from ripple.batch.rows import InputRows
    from ripple.eval.facts import choose_model, weights_hash

    table = gather(args)
    options_of(table)
    load_arguments(table)
    model = choose_model(str(table.get("model", DEFAULT_MODEL)))
    facts = {
        "model": model.name, "weights": weights_hash(model.folder), "device": table.get("device", "auto"),
        "dtype": table.get("dtype", "auto"),
    }  # fmt: skip
    options = {name: value for name, value in table.items() if name not in MODEL}
    job = Job(InputRows.open(args.input), args.output, options, facts, args.chat, args.format)
    job.check()
    cluster = cluster_of(args)
    engines = partial(_one_engine, table, args.batch)
    if cluster is not None:
        engines = partial(_workers, cluster, table, args.batch)
    try:
        tally = run_job(job, engines, is_quiet=False)
    except KeyboardInterrupt:
        remark(f"stopped; the same command resumes with what is missing in {args.output}.")
        raise
    if args.json:
        print_json({"rows": tally.rows, "errors": tally.errors, "results": str(tally.results)})
    else:
        bad = f", {tally.errors} of them with an error," if tally.errors else ""
        print(f"{tally.rows} rows{bad} in {tally.results}")
    return 0


@contextmanager
def _one_engine(table: Mapping[str, Any], batch: int | None) -> Iterator[DecodeRows]:
    """Load the model in this process."""
    from ripple.eval.decoding import default_batch
    from ripple.pool.decode import decode

    with open_engine(table) as engine:
        engine.max_batch = batch or default_batch(engine)
        try:
            yield partial(decode, engine)
        finally:
            engine.close(drain=False)


@contextmanager
def _workers(cluster: Cluster, table: Mapping[str, Any], batch: int | None) -> Iterator[DecodeRows]:
    """Load the model on the workers of a cluster."""
    with cluster.joined() as workers:
        yield partial(workers.decode, recipe_of(workers, table, batch))
