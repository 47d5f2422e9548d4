"""Where output goes: rich tables for people, one JSON object for machines, remarks on stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def console(record: bool = False) -> Console:
    """Return a rich console on stdout; what a recording one has printed can be saved as a picture."""
    from rich.console import Console

    return Console(highlight=False, record=record)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on one line."""
    print(json.dumps(value))


def remark(sentence: str) -> None:
    """Print a remark on stderr, away from the output."""
    print(f"ripple: {sentence}", file=sys.stderr)
