"""The rows of a job: JSON lines or Parquet with `id`, `prompt` or `messages`, and perhaps `options`.

A file is read twice, row by row: first for its ids, which must be there and must differ, then for its
prompts. What is wrong with anything but an id is that row's own error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ripple.errors import RippleError
from ripple.files import parse_json
from ripple.options import Options, merged

Id = str | int
NEEDS_PYARROW = "needs pyarrow: pip install 'ripple-dllm[ray]'"
_PARQUET = b"PAR1"  # how every such file begins
_READ_ROWS = 1024  # of a Parquet file at a time


@dataclass(frozen=True)
class InputRows:
    """A file of prompts whose ids have been checked."""

    path: Path
    ids: list[Id]
    sha256: str

    @classmethod
    def open(cls, path: Path) -> InputRows:
        """Read a file's ids, or say in one sentence what is wrong with the file or with one of them."""
        places: dict[Id, str] = {}
        for place, row in _read(path):
            where = f"{path}, {place}"
            name: Any = row.get("id") if isinstance(row, dict) else None
            if not _is_id(name):
                raise RippleError(f"{where}: needs an 'id' that is text or a whole number of 64 bits.")
            if name in places:
                raise RippleError(f"{where}: the id {name!r} is that of {places[name]}, too.")
            places[name] = place
        if not places:
            raise RippleError(f"{path} holds no rows.")
        if len({type(name) for name in places}) > 1:
            raise RippleError(f"{path}: ids must be all text or all whole numbers.")
        with path.open("rb") as file:
            return cls(path, list(places), hashlib.file_digest(file, "sha256").hexdigest())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for _, row in _read(self.path):
            yield row


def prompt_of(row: Mapping[str, Any], chat: bool) -> Any:
    """Return what a row asks to be decoded, for the engine to check."""
    given = {name: row[name] for name in ("prompt", "messages") if row.get(name) is not None}
    if len(given) != 1:
        raise RippleError("A row needs a 'prompt' or 'messages', and not both.")
    if "messages" in given:
        if not isinstance(given["messages"], list) or not given["messages"]:
            raise RippleError("'messages' must be a non-empty list of {'role': ..., 'content': ...}.")
        if not all(isinstance(message, dict) for message in given["messages"]):
            raise RippleError("'messages' must hold {'role': ..., 'content': ...} alone.")
        return given["messages"]
    prompt = given["prompt"]
    if not isinstance(prompt, str | list):
        raise RippleError(f"'prompt' must be text or a list of token ids, got {str(prompt)[:80]}.")
    if isinstance(prompt, str) and chat:
        return [{"role": "user", "content": prompt}]
    return prompt


def options_of(row: Mapping[str, Any], table: Mapping[str, Any]) -> Options:
    """Return how a row is decoded: as the job says, but for what its `options` say."""
    own = row.get("options")
    if own is None:
        return Options.of(table)
    if not isinstance(own, dict):
        raise RippleError(f"'options' must be an object, got {str(own)[:80]}.")
    own = {name: value for name, value in own.items() if value is not None}  # a Parquet column has them all
    if "trace" in own:
        raise RippleError("A row's options take no 'trace': nobody would see it.")
    return Options.of(merged(table, own))


def _read(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the place and the value of each row."""
    try:
        with path.open("rb") as file:
            is_parquet = file.read(len(_PARQUET)) == _PARQUET
        yield from _parquet(path) if is_parquet else _json_lines(path)
    except OSError as error:
        raise RippleError(f"Cannot read the prompts {path}: {error.strerror or error}.") from None


def _json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            place = f"line {number}"
            try:
                text = line.decode()
            except UnicodeDecodeError:
                raise RippleError(f"{path}, {place}: not UTF-8 text.") from None
            if text.strip():
                yield place, parse_json(text, f"{path}, {place}")


def _parquet(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise RippleError(f"{path} is a Parquet file, and reading it {NEEDS_PYARROW}.") from None
    try:
        # In this thread alone: one of pyarrow's own may abort the process while the interpreter is ending.
        with pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:
            batches = file.iter_batches(_READ_ROWS, use_threads=False)
            rows = (row for batch in batches for row in batch.to_pylist())
            yield from ((f"row {number}", row) for number, row in enumerate(rows, 1))
    except (OSError, ValueError, pyarrow.ArrowException):
        raise RippleError(f"{path} is a Parquet file, but damaged or cut short.") from None


def _is_id(name: object) -> bool:
    """Check what JSON and Parquet both can hold."""
    if isinstance(name, str):
        return not any("\ud800" <= character <= "\udfff" for character in name)
    return isinstance(name, int) and not isinstance(name, bool) and -(2**63) <= name < 2**63
