"""What a job has finished so far, on the disk: its facts, then one line per row in the order of their ends.

When every row is there, the lines become the job's results in the order of the input.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ripple.batch.rows import NEEDS_PYARROW, Id
from ripple.errors import RippleError
from ripple.files import Line, append_lines, truncate_partial_line, whole_file

FORMATS = ("jsonl", "parquet")
FIELDS: dict[str, type] = {  # of a result, beside its id; any may be null
    "text": str, "finish": str, "prompt_tokens": int, "new_tokens": int, "nfe": int, "canvases": int,
    "error": str,
}  # fmt: skip
_WRITTEN_ROWS = 1024  # of a Parquet file at a time


class Checkpoint:
    """The lines of a job that is not done; one process at a time may hold it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts: Line | None = None  # of the job whose lines these are
        self._places: dict[Id, int] = {}  # of a finished row's line in the file
        self._size = 0
        truncate_partial_line(path)
        with path.open("rb") as file:
            for line in file:
                self._take(line)

    def __contains__(self, name: Id) -> bool:
        return name in self._places

    def __len__(self) -> int:
        return len(self._places)

    def add(self, facts: Line, lines: Sequence[Line]) -> None:
        """Add finished rows; they are on the disk when this returns."""
        heads = [facts] if self.facts is None else []
        append_lines(self.path, [*heads, *lines])
        with self.path.open("rb") as file:
            file.seek(self._size)
            for line in file:
                self._take(line)

    def lines(self, ids: Sequence[Id]) -> Iterator[bytes]:
        """Yield the finished rows' lines in the order of their ids."""
        with self.path.open("rb") as file:
            for name in ids:
                file.seek(self._places[name])
                yield file.readline()

    def _take(self, line: bytes) -> None:
        """Take note of the next line of the file."""
        where, values = f"{self.path}, byte {self._size}", None
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict) or (self.facts is None) != ("input" in values):
            raise RippleError(f"{where}: not a line of an unfinished job; name another folder with --output.")
        if self.facts is None:
            self.facts = values
        elif (name := values.get("id")) in self._places or not isinstance(name, str | int):
            raise RippleError(f"{where}: the row {name!r} is there twice; name another folder with --output.")
        else:
            self._places[name] = self._size
        self._size += len(line)


def write_results(path: Path, lines: Iterator[bytes], ids: Sequence[Id]) -> None:
    """Write the results, whole or not at all, in the format that the file's name says."""
    with whole_file(path, "the results") as file:
        if path.suffix != ".parquet":
            file.writelines(lines)
            return
        pyarrow = import_pyarrow()
        kinds = {str: pyarrow.string(), int: pyarrow.int64()}
        fields = {"id": type(ids[0])} | FIELDS
        schema = pyarrow.schema([(name, kinds[kind]) for name, kind in fields.items()])
        with pyarrow.parquet.ParquetWriter(file, schema) as writer:
            while rows := [json.loads(line) for line in itertools.islice(lines, _WRITTEN_ROWS)]:
                writer.write_table(pyarrow.Table.from_pylist(rows, schema))


def import_pyarrow() -> Any:
    """Return pyarrow, or say how to install it."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise RippleError(f"Writing Parquet {NEEDS_PYARROW}.") from None
    return pyarrow
