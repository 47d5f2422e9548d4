"""`ripple decoders`: every decoder with its paper, fields and presets."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ripple.cli.console import print_json
from ripple.cli.listing import show
from ripple.decoders import DECODERS, PRESETS, decoder_plugins
from ripple.listing import listed

HELP = "list decoders, their fields and presets"


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Declare the options of `ripple decoders`."""
    parser.add_argument("name", nargs="*", metavar="NAME", help="show only these decoders")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    listing = listed("decoder", DECODERS, decoder_plugins(), PRESETS, args.name)
    if args.json:
        print_json(listing)
    else:
        show("decoder", listing)
    return 0
