"""Where output goes: rich tables for people, one JSON object for machines, remarks on stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from ripple.errors import RippleError

if TYPE_CHECKING:
    from rich.console import Console


def console(record: bool = False) -> Console:
    """Return a rich console on stdout, or say that rich is missing; a recorded one can be saved."""
    try:
        from rich.console import Console
    except ImportError:
        raise RippleError("This view needs the package rich; install it, or use --json.") from None
    if record:
        return Console(highlight=False, record=True, width=112, force_terminal=True)
    return Console(highlight=False)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on one line."""
    print(json.dumps(value))


def remark(sentence: str) -> None:
    """Print a remark on stderr, away from the output."""
    print(f"ripple: {sentence}", file=sys.stderr)
