"""Turns what a user calls a model, a folder or a hub id, into a folder."""

from __future__ import annotations

import re
from pathlib import Path

from ripple.errors import RippleError

EMBEDDED = Path(__file__).parent.parent / "embedded"  # trained models that come with the package
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# Configs, weights, tokenizers and templates. No Python and no pickles ever reach the disk.
_PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]


def resolve(name_or_path: str | Path) -> Path:
    """Return an embedded model's folder, an existing one, or the snapshot of a hub model `owner/name`."""
    path = Path(name_or_path).expanduser()
    name = str(name_or_path)
    if name in embedded_models():
        return EMBEDDED / name
    if name and path.is_dir():  # an empty name would be the current folder
        return path
    if name and path.exists():
        raise RippleError(f"{name} is a file, but a model is a folder.")
    if not _HUB_ID.fullmatch(name):
        raise RippleError(
            f"{name!r} is neither an existing folder nor a hub id owner/name; "
            f"embedded models are {', '.join(embedded_models())}."
        )
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise RippleError(
            f"{name} is no folder here, and fetching it from the hub needs the package huggingface_hub."
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=_PATTERNS))
    except Exception as cause:  # network, HTTP, disk and validation errors share no base class
        raise RippleError(
            f"{name} is no folder here, is not in the local hub cache, and cannot be fetched from the hub "
            f"({type(cause).__name__})."
        ) from cause


def embedded_models() -> list[str]:
    """Return the names of the trained models that come with the package."""
    return sorted(path.parent.name for path in EMBEDDED.glob("*/config.json"))
