"""Turns what a user calls a model, a folder or a hub id, into a folder."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

from ripple.errors import RippleError
from ripple.models.json_files import shown

EMBEDDED = Path(__file__).parent.parent / "embedded"  # trained models that come with the package
_LONGEST_NAME = 96  # of a repository on the hub
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# Configs, weights, tokenizers and templates. No Python and no pickles ever reach the disk.
_PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
_NOT_READ = ["*/*"]  # folders within, such as Nemotron's adapter for speculation


def resolve(name_or_path: str | Path) -> Path:
    """Return an embedded model's folder, an existing one, or the snapshot of a hub model `owner/name`."""
    if not isinstance(name_or_path, str | Path):
        raise RippleError(f"A model is a folder or a name, not {type(name_or_path).__name__}.")
    name = str(name_or_path)
    path = Path(os.path.expanduser(name))
    if name in embedded_models():
        return EMBEDDED / name
    if name and os.path.isdir(path):  # an empty name would be the current folder
        return path
    if name and os.path.exists(path):
        raise RippleError(f"{name} is a file, but a model is a folder.")
    if not _HUB_ID.fullmatch(name):
        close = difflib.get_close_matches(name[:_LONGEST_NAME], embedded_models(), n=1, cutoff=0.5)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise RippleError(
            f"{shown(name)} is neither an existing folder nor a hub id owner/name.{hint} "
            f"Embedded models are {', '.join(embedded_models())}."
        )
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise RippleError(
            f"{name} is no folder here, and fetching it from the hub needs the package huggingface_hub."
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=_PATTERNS, ignore_patterns=_NOT_READ))
    except Exception as cause:  # network, HTTP, disk and validation errors share no base class
        raise RippleError(
            f"{name} is no folder here, is not in the local hub cache, and cannot be fetched from the hub "
            f"({type(cause).__name__})."
        ) from cause


def embedded_models() -> list[str]:
    """Return the names of the trained models that come with the package."""
    return sorted(path.parent.name for path in EMBEDDED.glob("*/config.json"))
