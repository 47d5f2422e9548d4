"""`ripple decoders`: every decoder with its paper, fields and presets."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
from typing import Any

from ripple.cli.console import console, print_json
from ripple.cli.options import field_kinds
from ripple.decoders import DECODERS, PRESETS, Decoder
from ripple.errors import unknown

HELP = "list decoders, their fields and presets"
_COMMENT = re.compile(r"^    (\w+): [^#\n]*#\s*(.+)$", re.MULTILINE)  # `tau: float = 0.9  # τ`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ripple decoders`."""
    parser.add_argument("name", nargs="*", metavar="NAME", help="show only these decoders")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    for name in args.name:
        if name not in DECODERS:
            raise unknown("decoder", name, DECODERS)
    found = [describe(cls) for name, cls in DECODERS.items() if not args.name or name in args.name]
    if args.json:
        print_json({"decoders": found})
    else:
        _show(found)
    return 0


def describe(cls: type[Decoder]) -> dict[str, Any]:
    """Return what there is to know about a decoder; what a field means is its comment in the source."""
    comments = _comments(cls)
    return {
        "name": cls.name,
        "about": (inspect.getdoc(cls) or "").split("\n")[0],
        "paper": cls.paper,
        "fields": [
            {
                "name": field.name,
                "type": _type_name(field_kinds(cls)[field.name]),
                "default": field.default,
                "about": comments.get(field.name, ""),
            }
            for field in dataclasses.fields(cls)
        ],
        "presets": {
            name: preset.describe() for name, preset in PRESETS.items() if name.split("/")[0] == cls.name
        },
    }


def _comments(cls: type[Decoder]) -> dict[str, str]:
    try:
        source = inspect.getsource(cls)
    except OSError:  # installed without sources
        return {}
    return {match[1]: match[2] for match in _COMMENT.finditer(source)}


def _type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else "decoder"


def _show(found: list[dict[str, Any]]) -> None:
    out = console()
    from rich.table import Table
    from rich.text import Text

    for decoder in found:
        out.print(Text(decoder["name"], "bold cyan").append(f"  {decoder['paper']}", "not bold dim"))
        out.print(Text(f"  {decoder['about']}"))
        table = Table.grid(padding=(0, 2))
        for field in decoder["fields"]:
            option = f"    --{field['name'].replace('_', '-')}"
            table.add_row(Text(option, "green"), field["type"], str(field["default"]), Text(field["about"]))
        out.print(table)
        for name, what in decoder["presets"].items():
            out.print(Text("    ").append(name, "magenta").append(f" = {what}", "dim"))
        out.print()
    out.print("Use: ripple generate --decoder NAME_OR_PRESET --FIELD VALUE 'prompt'", style="dim")
