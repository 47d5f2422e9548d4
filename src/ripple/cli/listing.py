"""Listings of decoders and caches for people."""

from __future__ import annotations

from ripple.cli.console import console
from ripple.listing import Facts


def show(kind: str, listing: Facts) -> None:
    """Print a listing for people."""
    out = console()
    from rich.table import Table
    from rich.text import Text

    out.print(Text("Option, default, allowed values and meaning of every field:\n", "dim"))
    for one in listing[f"{kind}s"]:
        whose = "" if one["package"] == "ripple" else f"  from {one['package']}"
        out.print(Text(one["name"], "bold cyan").append(f"  {one['paper']}{whose}", "not bold dim"))
        out.print(Text(f"  {one['about']}"))
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        table.add_column(max_width=16, overflow="fold")
        for field in one["fields"]:
            texts = (_text(field["default"]), field["allowed"], field["about"])
            table.add_row(Text(f"    {field['option']}", "green"), *map(Text, texts))
        out.print(table)
        for name, what in one["presets"].items():
            out.print(Text("    ").append(name, "magenta").append(f" = {what}", "dim"))
        out.print()
    for name, why in listing["broken"].items():
        out.print(Text(name, "bold red").append(f"  cannot be used: {why}.", "not bold red"))
    use = f"ripple generate --{kind} NAME --FIELD VALUE 'prompt'    or    --{kind} NAME:field=value,..."
    out.print(Text(f"Use: {use}", "dim"))


def _text(value: object) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
