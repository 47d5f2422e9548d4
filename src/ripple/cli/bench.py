"""`ripple bench`: small measurements of the engine itself."""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ripple.cli.console import console, print_json
from ripple.errors import RippleError, unknown

if TYPE_CHECKING:
    from rich.table import Table

HELP = "measure decoders on the generated tasks, and the engine itself"
BENCHES = {
    "overhead": "ripple.bench.overhead",
    "load-memory": "ripple.bench.load_memory",
    "packing": "ripple.bench.packing",
    "equality": "ripple.bench.equality",
    "decoders": "ripple.bench.decoders",
    "blame": "ripple.bench.blame",
    "step": "ripple.bench.step",
    "tiles": "ripple.bench.tiles",
    "replay": "ripple.bench.replay",
    "throughput": "ripple.bench.throughput",
}
OPTIONS = (
    "folder",
    "length",
    "device",
    "models",
    "families",
    "caches",
    "items",
    "workers",
    "sweeps",
    "decoders",
    "out",
    "shapes",
    "layers",
    "prompts",
    "batches",
    "candidates",
    "tasks",
    "trace",
    "seconds",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ripple bench`."""
    parser.add_argument("bench", metavar="BENCH", help=" | ".join(BENCHES))
    parser.add_argument("folder", nargs="?", type=Path, help="a checkpoint; a random one when left out")
    parser.add_argument("--length", type=int, help="response positions, at least one block of 32")
    parser.add_argument("--device", help="cpu, cuda or auto")
    many = parser.add_argument_group("decoders: every decoder on the generated tasks")
    many.add_argument("--models", help="embedded names, folders or hub ids, joined by commas")
    many.add_argument("--families", help="task families, joined by commas")
    many.add_argument("--caches", help="caches, joined by commas")
    many.add_argument("--decoders", help="only these, joined by commas")
    many.add_argument("--items", type=int, help="test items per family (1000 on a GPU, 4 on a CPU)")
    many.add_argument("--workers", type=int, help="processes that share the device")
    many.add_argument("--sweeps", action="store_true", default=None, help="all settings, not one per decoder")
    many.add_argument("--out", type=Path, help="result lines; a run goes on where the file ends")
    size = parser.add_argument_group("step, replay, throughput: full model size, random weights")
    size.add_argument("--shapes", help="llada-8b, dream-7b, joined by commas")
    size.add_argument("--layers", type=int, help="fewer layers than the released model has")
    size.add_argument("--prompts", help="prompt lengths in tokens, joined by commas")
    size.add_argument("--batches", help="requests at a time, joined by commas")
    size.add_argument("--candidates", help="step: tokens tried in a lookahead, joined by commas")
    size.add_argument("--tasks", help="replay: the paper's benchmarks, joined by commas")
    size.add_argument("--trace", type=Path, help="replay: a recorded decoding instead")
    size.add_argument("--seconds", type=float, help="stop starting new measurements after this long")
    parser.add_argument("--json", action="store_true", help="print one JSON line")


def run(args: argparse.Namespace) -> int:
    """Run one benchmark and print its numbers."""
    if args.bench not in BENCHES:
        raise unknown("benchmark", args.bench, BENCHES)
    measure = importlib.import_module(BENCHES[args.bench]).measure
    given = {name: value for name in OPTIONS if (value := getattr(args, name)) is not None}
    for name in given:
        if name not in inspect.signature(measure).parameters:
            raise RippleError(f"Benchmark {args.bench} takes no {name}.")
    if given.get("length", 32) < 32:
        raise RippleError(f"--length must be at least one block of 32, got {args.length}.")
    if args.folder is not None and not args.folder.is_dir():
        raise RippleError(f"Model folder {args.folder} does not exist.")
    out = None if args.json else console()
    found = measure(**given)
    if out is None:
        print_json(found)
    else:
        for table in _tables(args.bench, found):
            out.print(table)
    return 0


def _tables(title: str, found: dict[str, Any]) -> Iterator[Table]:
    """Yield one table of the plain numbers, and one of each table within."""
    from rich.table import Table

    plain = Table(title=title, title_justify="left", show_header=False)
    for name, value in found.items():
        if not isinstance(value, dict | list):
            plain.add_row(name, str(value))
    yield plain
    for name, rows in found.items():
        if isinstance(rows, list):
            rows = {str(number): row for number, row in enumerate(rows)}
        if isinstance(rows, dict) and rows:
            rows = {label: row if isinstance(row, dict) else {"value": row} for label, row in rows.items()}
            columns = list(next(iter(rows.values())))
            table = Table(name, *columns)
            for label, row in rows.items():
                table.add_row(label, *(str(row[column]) for column in columns))
            yield table
