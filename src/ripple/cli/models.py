"""`ripple models`: the embedded models and the families this package runs, or what one checkpoint holds.

Given a second folder, it writes the checkpoint's fp8 version there.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ripple.cli.console import console, print_json
from ripple.cli.options import MODEL
from ripple.errors import RippleError, unknown
from ripple.models.config import read_config
from ripple.models.dense import SCALE
from ripple.models.families import FAMILIES
from ripple.models.hub import EMBEDDED, embedded_models, resolve
from ripple.models.safetensors_files import read_header, shard_paths

HELP = "list models and families, describe a checkpoint, or write its fp8 version"


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Declare the options of `ripple models`."""
    parser.add_argument("model", nargs="?", metavar="NAME_OR_FOLDER", help="describe this checkpoint")
    parser.add_argument("--fp8", metavar="NEW_FOLDER", help="write this checkpoint's fp8 version there")
    parser.add_argument("--block-size", type=int, metavar="BLOCK_SIZE", help=MODEL["block_size"])
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the models and families, or one checkpoint."""
    if args.fp8 is not None:
        return _write_fp8(args.model, args.fp8, args.block_size, args.json)
    if args.model is None:
        return _show_all(args.json)
    facts = describe(args.model, args.block_size)
    if args.json:
        print_json(facts)
        return 0
    out = console()
    from rich.table import Table

    table = Table(title=args.model, title_justify="left", show_header=False)
    for name, value in facts.items():
        table.add_row(name, f"{value:,}" if name == "parameters" else str(value))
    out.print(table)
    return 0


def _write_fp8(model: str | None, folder: str, block_size: int | None, as_json: bool) -> int:
    from ripple.models.quantize import write_fp8

    if model is None:
        raise RippleError("Say which checkpoint --fp8 is to be made from: ripple models NAME --fp8 FOLDER.")
    write_fp8(resolve(model), Path(os.path.expanduser(folder)), block_size)
    if as_json:
        print_json({"model": model, "fp8": folder})
    else:
        console().print(f"The fp8 version of {model} is in {folder}.", markup=False)
    return 0


def describe(name_or_folder: str, block_size: int | None = None) -> dict[str, Any]:
    """Return the parsed config and the parameter count of a checkpoint; no weights are read."""
    folder = Path(os.path.expanduser(name_or_folder))
    if name_or_folder in embedded_models():
        folder = EMBEDDED / name_or_folder
    elif not name_or_folder or not os.path.isdir(folder):
        raise unknown("model folder or name", name_or_folder, embedded_models())
    facts = dataclasses.asdict(read_config(folder, block_size))
    if any(folder.glob("*.safetensors")):  # a config alone can be described too
        stored = [tensor for path in shard_paths(folder) for tensor in read_header(path)]
        facts["parameters"] = sum(math.prod(one.shape) for one in stored if not one.name.endswith(SCALE))
    return facts


def _show_all(as_json: bool) -> int:
    embedded = [_embedded(name) for name in embedded_models()]
    families = [
        {
            "family": family.name,
            "architectures": list(family.architectures),
            "about": family.about,
            "models": list(family.hub_ids),
        }
        for family in FAMILIES.values()
    ]
    if as_json:
        print_json({"embedded": embedded, "families": families})
        return 0
    out = console()
    from rich.table import Table

    table = Table(title="Embedded models", title_justify="left")
    for column in ("name", "family", "parameters", "positions"):
        table.add_column(column)
    for row in embedded:
        table.add_row(row["name"], row["family"], f"{row['parameters']:,}", f"{row['positions']:,}")
    out.print(table)
    out.print("They solve the problems of `ripple tasks` and know nothing else.\n", style="dim")
    table = Table(title="Families", title_justify="left", show_lines=True)
    table.add_column("family, architecture, remarks", overflow="fold")
    table.add_column("known hub ids", overflow="fold", no_wrap=True)
    for family in FAMILIES.values():
        table.add_row(
            "\n".join((family.name, *family.architectures, family.about)), "\n".join(family.hub_ids)
        )
    out.print(table)
    out.print("Use: ripple generate --model NAME_OR_HUB_ID_OR_FOLDER 'prompt'", style="dim")
    return 0


def _embedded(name: str) -> dict[str, Any]:
    facts = describe(name)
    return {
        "name": name, "family": facts["family"], "parameters": facts["parameters"],
        "positions": facts["max_positions"],
    }  # fmt: skip
