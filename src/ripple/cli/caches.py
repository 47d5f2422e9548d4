"""`ripple caches`: every cache policy with its paper and fields."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ripple.caches import CACHES, cache_plugins
from ripple.cli.console import print_json
from ripple.cli.listing import show
from ripple.listing import listed

HELP = "list caches and their fields"


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Declare the options of `ripple caches`."""
    parser.add_argument("name", nargs="*", metavar="NAME", help="show only these caches")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    listing = listed("cache", CACHES, cache_plugins(), {}, args.name)
    if args.json:
        print_json(listing)
    else:
        show("cache", listing)
    return 0
