"""Checks the checkpoint folder that a benchmark is given."""

from __future__ import annotations

from pathlib import Path

from ripple.errors import RippleError


def check_folder(folder: Path) -> Path:
    """Return the folder, or say that there is none."""
    if not folder.is_dir():
        raise RippleError(f"Model folder {folder} does not exist.")
    return folder
