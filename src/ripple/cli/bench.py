"""`ripple bench`: lists the measurements, or runs one; its options are the fields of its class."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ripple.bench
import ripple.eval
from ripple.cli.console import console, print_json
from ripple.cli.options import add_field, field_help
from ripple.errors import unknown
from ripple.fields import fields_of, merged
from ripple.files import check_folder, check_output

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from ripple.measurement import Measurement

HELP = "measure the engine, and decoders on tasks"


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Declare the options of `ripple bench`, or those of the measurement that the first word names."""
    known = measurements()
    name = next((word for word in words if not word.startswith("-")), None)
    parser.add_argument("--json", action="store_true", help="print one JSON object on one line")
    if name is None:
        parser.usage = "ripple bench [NAME [options]]"
        parser.epilog = listing()
        parser.set_defaults(name=None)
        return
    if name not in known:
        raise unknown("measurement", name, known)
    cls = measurement_class(known[name])
    parser.prog = f"ripple bench {name}"
    parser.usage = f"ripple bench {name} [options]"
    parser.description = inspect.getdoc(cls)
    parser.add_argument("name", choices=[name], help=argparse.SUPPRESS)
    group = parser.add_argument_group("measurement")
    for field in fields_of(cls).values():
        add_field(group, field, field_help(field))


def run(args: argparse.Namespace) -> int:
    """List the measurements, or run one and print its numbers."""
    if args.name is None:
        if args.json:
            print_json({"measurements": summaries()})
        else:
            print(f"usage: ripple bench NAME [options]\n\n{listing()}")
        return 0
    measurement = _build(args)
    numbers = measurement.run()
    if args.json:
        print_json(numbers)
        return 0
    out, files = console(), numbers.pop("files", None)
    for table in _tables(args.name, numbers):
        out.print(table)
    if files is not None:
        out.print(f"written: {files}", markup=False, soft_wrap=True)
    return 0


def measurements() -> dict[str, str]:
    """Return every measurement's module and class by name."""
    return ripple.bench.MEASUREMENTS | ripple.eval.MEASUREMENTS


def measurement_class(place: str) -> type[Measurement]:
    """Import the class of a measurement."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def summaries() -> dict[str, str]:
    """Return the first line of every measurement's docstring."""
    return {name: _summary(place) for name, place in measurements().items()}


def _summary(place: str) -> str:
    """Return a class's first line from its source: importing it would import torch."""
    module, _, name = place.partition(":")
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    return (ast.get_docstring(classes[0]) or "").split("\n")[0] if classes else ""


def listing() -> str:
    """Return the measurements, one after another."""
    lines = summaries()
    width = max(map(len, lines)) + 4
    return "\n".join(
        textwrap.fill(about, 79, initial_indent=f"  {name:<{width - 2}}", subsequent_indent=" " * width)
        for name, about in lines.items()
    )


def _build(args: argparse.Namespace) -> Measurement:
    """Return the measurement that the options describe; where it writes is checked before it starts."""
    cls = measurement_class(measurements()[args.name])
    given = {name: value for name in fields_of(cls) if (value := getattr(args, name)) is not None}
    measurement: Measurement = merged("", cls(), given)
    out = getattr(measurement, "out", None)
    if isinstance(out, Path):
        check_folder(out.parent, "the results' folder")
        if out.parent.is_dir():
            check_output(out, "the results", is_appended=True)
    return measurement


def _tables(title: str, numbers: dict[str, Any]) -> Iterator[Table]:
    """Yield one table of the plain numbers, and one of each table within; nothing in them is cut."""
    from rich.table import Table

    plain = Table(title=title, title_justify="left", show_header=False)
    for name, value in numbers.items():
        if not isinstance(value, dict | list):
            plain.add_row(name, _cell(value))
    yield plain
    for name, rows in numbers.items():
        if isinstance(rows, list):
            rows = {str(number): row for number, row in enumerate(rows, start=1)}
        if isinstance(rows, dict) and rows:
            rows = {label: row if isinstance(row, dict) else {"value": row} for label, row in rows.items()}
            columns = list(dict.fromkeys(column for row in rows.values() for column in row))
            table = Table(name, *columns)
            for column in table.columns:
                column.overflow = "fold"
            for label, row in rows.items():
                table.add_row(_cell(label), *(_cell(row.get(column, "")) for column in columns))
            yield table


def _cell(value: object) -> Text:
    from rich.text import Text

    return Text(str(value), overflow="fold")
