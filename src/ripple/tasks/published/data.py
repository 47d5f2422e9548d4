"""Reads benchmark files as their publishers wrote them: JSON lines, plain or gzipped, a JSON array, Parquet.

Every error is one sentence with the file and the line. The checksum is taken over the uncompressed
bytes, so that a file and its gzipped copy are known to be the same data.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ripple.errors import RippleError

DataRow = dict[str, Any]
Fields = Mapping[str, type]
_PARQUET = b"PAR1"  # how every such file begins

# Checksums of the uncompressed files as published: a result on other bytes is a result on other data.
PUBLISHED = {
    "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465": "GSM8K train, grade-school-math",
    "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14": "GSM8K test, grade-school-math",
    "1d49078ba3e2b196b9344535bef34a43021f038fad9561d6ee7c53450609a6a2": "HumanEval, openai/human-eval",
    "ccf64ceae9c5403bf50a044cb6d505bfd2a2963ee58338ba268fd65beab92a9f": "MBPP, google-research",
    "ca95deaa9a01ef0a6f439f88bcf0dd3db3563d22f22aad6cae04ebb9a8d8c8e9": "MBPP sanitized, google-research",
    "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132": "MATH-500, openai/prm800k",
}


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file that was read."""

    path: Path
    sha256: str  # of the uncompressed bytes
    rows: tuple[DataRow, ...]
    lines: tuple[int, ...]  # where each row stands in the file; for Parquet the number of the row

    @property
    def published(self) -> str:
        """Return the publisher whose bytes these are, or nothing."""
        return PUBLISHED.get(self.sha256, "")

    def describe(self) -> str:
        """Say in one line which file this is, with its checksum."""
        whose = self.published or _hub_origin(self.path) or "not a file we know from its publisher"
        return f"{self.path.name}: {len(self.rows)} rows, sha256 {self.sha256} ({whose})"

    def row_error(self, index: int, fault: str) -> RippleError:
        """Return the error for one of the rows."""
        return RippleError(f"{self.path}, line {self.lines[index]}: {fault}.")


def find_file(data: Path, folder: str, names: Sequence[str]) -> Path:
    """Return the benchmark's file: `data` itself, or the first of the names in its folder."""
    if data.is_file():
        return data
    if not data.exists():
        raise RippleError(f"There is no file or folder {data}.")
    for place in (data / folder, data):
        for name in names:
            if (place / name).is_file():
                return place / name
    raise RippleError(f"{data} holds no {folder} file; expected {folder}/{f' or {folder}/'.join(names)}.")


def sibling(path: Path, names: Sequence[str]) -> Path | None:
    """Return the first file of these names in the same folder as another, if there is one."""
    return next((path.parent / name for name in names if (path.parent / name).is_file()), None)


def read_file(path: Path, fields: Fields) -> DataFile:
    """Read a file whose every row has these fields of these types."""
    raw = _bytes(path)
    rows, lines = _parquet(path, raw) if raw[:4] == _PARQUET else _text(path, raw)
    if not rows:
        raise RippleError(f"{path} holds no rows.")
    file = DataFile(path, hashlib.sha256(raw).hexdigest(), rows, lines)
    for index, row in enumerate(file.rows):
        fault = _row_fault(row, fields)
        if fault:
            raise file.row_error(index, fault)
    return file


def _bytes(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise RippleError(f"There is no file {path}.") from None
    except OSError as error:
        raise RippleError(f"{path} cannot be read: {error.strerror or error}.") from None
    if raw[:2] != b"\x1f\x8b":  # the content decides, not the name
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error):
        raise RippleError(f"{path} is gzipped, but damaged or cut short.") from None


def _text(path: Path, raw: bytes) -> tuple[tuple[DataRow, ...], tuple[int, ...]]:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise RippleError(f"{path}, line {line}: not UTF-8 text.") from None
    return _array(path, text) if text.lstrip()[:1] == "[" else _lines(path, text)


def _parquet(path: Path, raw: bytes) -> tuple[tuple[DataRow, ...], tuple[int, ...]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise RippleError(
            f"{path} is a Parquet file, and reading it needs pyarrow: pip install 'ripple-dllm[hub]'."
        ) from None
    try:
        # In this thread alone: one of pyarrow's own may let go of `raw` while the interpreter is ending, and
        # then the whole process aborts, after its work is done.
        with pyarrow.parquet.ParquetFile(pyarrow.BufferReader(raw), pre_buffer=False) as file:
            rows = file.read(use_threads=False).to_pylist()
    except (OSError, ValueError):  # pyarrow's own errors are among these
        raise RippleError(f"{path} is a Parquet file, but damaged or cut short.") from None
    return tuple(rows), tuple(range(1, len(rows) + 1))


def _hub_origin(path: Path) -> str:
    """Return the hub's data set and commit, where a file lies in the hub's cache, or nothing."""
    for folder in path.parents:
        if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("datasets--"):
            name = folder.parent.parent.name.removeprefix("datasets--").replace("--", "/")
            return f"{name} on the hub, commit {folder.name}"
    return ""


def _lines(path: Path, text: str) -> tuple[tuple[DataRow, ...], tuple[int, ...]]:
    rows, numbers = [], []
    # Only a newline ends a row: splitlines() would also break at separators that JSON allows in strings.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError):
            raise RippleError(f"{path}, line {number}: not a JSON object.") from None
        numbers.append(number)
    return tuple(rows), tuple(numbers)


def _array(path: Path, text: str) -> tuple[tuple[DataRow, ...], tuple[int, ...]]:
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        raise RippleError(f"{path}, line {error.lineno}: not valid JSON.") from None
    except RecursionError:
        raise RippleError(f"{path}, line 1: JSON nested too deeply.") from None
    numbers, decoder, at = [], json.JSONDecoder(), text.index("[") + 1
    for _ in rows:  # a second walk, only to know at which line each row begins
        at += len(text[at:]) - len(text[at:].lstrip(" \t\r\n,"))
        numbers.append(text.count("\n", 0, at) + 1)
        at = decoder.raw_decode(text, at)[1]
    return tuple(rows), tuple(numbers)


def _row_fault(row: object, fields: Fields) -> str:
    """Say what is wrong with a row, or nothing."""
    if not isinstance(row, dict):
        return "not a JSON object"
    for name, kind in fields.items():
        if name not in row:
            return f"the field {name!r} is missing"
        if type(row[name]) is not kind:  # not isinstance: a bool is no int here
            return f"the field {name!r} must be {_KIND_NAMES[kind]}, not {type(row[name]).__name__}"
        if kind is list and not all(isinstance(part, str) for part in row[name]):
            return f"the field {name!r} must be a list of strings"
    return ""


_KIND_NAMES: dict[type, str] = {str: "a string", int: "a whole number", list: "a list of strings"}
