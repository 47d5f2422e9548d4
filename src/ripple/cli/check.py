"""`ripple check`: fast paths against plain ones on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ripple.cli.console import console, print_json
from ripple.errors import RippleError

if TYPE_CHECKING:
    from rich.table import Table

HELP = "compare the fast paths of this machine with the plain ones"
DIFFERENT = 1  # exit code


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Declare the options of `ripple check`."""
    parser.add_argument(
        "--device", default="auto", metavar="DEVICE", help="cpu, cuda, cuda:N or auto (default)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Compare every pair; one that differs is told in one sentence and ends the check."""
    from ripple.check.paths import check_paths
    from ripple.models.load import torch_device

    device = str(torch_device(args.device))
    try:
        gaps = check_paths(args.device)
    except RippleError as difference:
        if args.json:
            print_json({"device": device, "equal": False, "difference": str(difference)})
        else:
            print(difference)
        return DIFFERENT
    largest = max(gaps, key=lambda name: gaps[name])
    if args.json:
        print_json({"device": device, "equal": True, "gaps": gaps, "largest": gaps[largest]})
        return 0
    out = console()
    out.print(_draw(gaps, device))
    out.print(
        f"{len(gaps)} pairs agree; the largest difference is {gaps[largest]:.3g}: {largest}.", markup=False
    )
    return 0


def _draw(gaps: dict[str, float], device: str) -> Table:
    """Draw the relative difference of each pair."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=f"Relative differences on {device}", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("pair", overflow="fold")
    table.add_column("difference", justify="right", no_wrap=True)
    for name, gap in gaps.items():
        table.add_row(name, f"{gap:.2g}")
    return table
