"""JSON files of a model folder: reading, with one sentence for whatever is broken, and writing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ripple.errors import RippleError

_MOST_BYTES = 256 << 20  # the tokenizer.json of a large model has some 30 MB
_SHOWN_CHARACTERS = 80


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in `path`, or raise one sentence that names the file."""
    if not os.path.exists(path):  # unlike Path.exists never an OSError, whatever the name
        raise RippleError(f"{path.parent} holds no {path.name}.")
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            raise ValueError("a folder, a device or far too large")
        value = json.loads(path.read_bytes())
    # Undecodable text and numbers with thousands of digits are ValueErrors, deep nesting is a RecursionError.
    except (OSError, ValueError, RecursionError) as cause:
        raise RippleError(f"{path} cannot be read as JSON.") from cause
    if not isinstance(value, dict):
        raise RippleError(f"{path} must hold a JSON object.")
    return value


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write one JSON object in a stable layout."""
    path.write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def shown(value: object) -> str:
    """Return a value as a message can quote it: JSON, printable, not too long."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
