"""`ripple models`: the model families this package runs, or what a checkpoint folder holds."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from ripple.cli.console import console, print_json
from ripple.errors import RippleError

HELP = "list supported models, or describe a checkpoint folder"
FAMILIES: tuple[dict[str, Any], ...] = (
    {
        "family": "llada",
        "architecture": "LLaDAModelLM",
        "about": "row i predicts token i; rotary positions in fp32",
        "models": ["GSAI-ML/LLaDA-8B-Instruct", "GSAI-ML/LLaDA-1.5", "GSAI-ML/iLLaDA-8B"],
    },
    {
        "family": "dream",
        "architecture": "DreamModel",
        "about": "row i predicts token i + 1; biased, grouped queries",
        "models": [
            "Dream-org/Dream-v0-Instruct-7B",
            "Dream-org/Dream-Coder-v0-Instruct-7B",
            "apple/DiffuCoder-7B-Instruct",
        ],
    },
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ripple models`."""
    parser.add_argument("folder", nargs="?", metavar="PATH", help="describe this checkpoint folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the families, or one folder."""
    if args.folder is None:
        return _show_families(args.json)
    facts = describe(args.folder)
    if args.json:
        print_json(facts)
        return 0
    out = console()
    from rich.table import Table

    table = Table(title=args.folder, title_justify="left", show_header=False)
    for name, value in facts.items():
        shown = f"{value:,}" if name == "parameters" else str(value)
        table.add_row(name, shown)
    out.print(table)
    return 0


def describe(folder: str) -> dict[str, Any]:
    """Return the parsed config and the parameter count of a folder; no weights are read."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise RippleError(f"{folder} is no folder here; `ripple models` describes checkpoint folders.")
    import torch

    from ripple.models.checkpoint import empty_weights
    from ripple.models.config import read_config

    config = read_config(path)
    _, tensors = empty_weights(config, torch.device("meta"), torch.bfloat16)
    n_parameters = sum(tensor.numel() for tensor in tensors.values())
    return {**dataclasses.asdict(config), "parameters": n_parameters}


def _show_families(as_json: bool) -> int:
    if as_json:
        print_json({"families": list(FAMILIES)})
        return 0
    out = console()
    from rich.table import Table

    table = Table()
    for name in ("family", "architecture", "known hub ids", "remarks"):
        table.add_column(name, overflow="fold", no_wrap=name == "known hub ids")
    for family in FAMILIES:
        ids = "\n".join(family["models"])
        table.add_row(family["family"], family["architecture"], ids, family["about"])
    out.print(table)
    out.print("Use: ripple generate --model HUB_ID_OR_FOLDER 'prompt'", style="dim")
    return 0
