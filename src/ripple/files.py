"""Output files: checked before the work starts, written whole, and result lines that survive a kill.

A whole file is written beside its place and moved there when it is complete; links are followed, and only
regular files are replaced. Result lines are appended one by one and are on the disk when `append_line`
returns.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ripple.errors import RippleError

Line = dict[str, Any]


def check_output(path: str | Path, what: str = "the output", is_appended: bool = False) -> Path:
    """Return the path, or say in one sentence why no file can be written there.

    A file that is not appended to is written beside its place, so that its folder must be writable, too.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = target.stat().st_mode if target.exists() else None
    except OSError as error:
        raise RippleError(f"Cannot write {what} {path}: {error.strerror}.") from None
    if mode is not None and not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise RippleError(f"Cannot write {what} {path}: it is {kind}.")
    if not target.parent.is_dir():
        raise RippleError(f"Cannot write {what} {path}: there is no folder {target.parent}.")
    if mode is not None and not os.access(target, os.W_OK):
        raise RippleError(f"Cannot write {what} {path}: permission denied.")
    if mode is None or not is_appended:
        if not os.access(target.parent, os.W_OK):
            raise RippleError(f"Cannot write {what} {path}: no permission to write into {target.parent}.")
        if mode is not None and target.is_mount():
            raise RippleError(f"Cannot write {what} {path}: it is a mount of its own and cannot be replaced.")
    return Path(path)


def check_folder(path: str | Path, what: str = "the folder") -> Path:
    """Return the path of a folder that exists or can be made, or say why not; nothing is made yet."""
    target = Path(os.path.realpath(path))
    parent = next(p for p in (target, *target.parents) if p.exists())
    if not parent.is_dir():
        raise RippleError(f"Cannot write {what} {path}: {parent} is not a folder.")
    if not os.access(parent, os.W_OK):
        raise RippleError(f"Cannot write {what} {path}: permission denied.")
    return Path(path)


def check_new_file(path: str | Path, what: str = "the output", is_appended: bool = False) -> Path:
    """Return the path of a file whose folder may not be made yet, or say why it cannot be written."""
    check_folder(Path(path).parent, f"{what} into")
    return check_output(path, what, is_appended) if Path(path).parent.is_dir() else Path(path)


def write_whole(path: str | Path, data: str | bytes, what: str = "the output") -> None:
    """Write a file so that it appears whole or not at all."""
    with whole_file(path, what) as file:
        file.write(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)


@contextmanager
def whole_file(path: str | Path, what: str = "the output") -> Iterator[BinaryIO]:
    """Open a file for writing that appears when the block ends, whole, or not at all."""
    target = Path(os.path.realpath(check_output(path, what)))
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            part.chmod(stat.S_IMODE(target.stat().st_mode))
        os.replace(part, target)
    except OSError as error:
        raise RippleError(f"Cannot write {what} {path}: {error.strerror}.") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


# -- JSON lines --------------------------------------------------------------------------------------------


def parse_lines(path: str | Path, what: str) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of every JSON line of a file."""
    for number, row in enumerate(_read_text(path, what).split("\n"), start=1):
        if row.strip():
            yield number, parse_json(row, f"{path}, line {number}")


def parse_json(text: str, where: str) -> Any:
    """Return the value of a JSON text, or say where it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise RippleError(f"{where}: not valid JSON.") from None


def append_line(path: Path, line: Line) -> None:
    """Append one JSON line that is on the disk, whole, when this returns; on failure nothing is added."""
    append_lines(path, [line])


def append_lines(path: Path, lines: Iterable[Line]) -> None:
    """Append JSON lines as `append_line` does one, in one go."""
    data = _json_lines(lines)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise RippleError(f"Cannot write the results {path}: {error.strerror}.") from None
    try:
        before = os.fstat(descriptor).st_size
        if os.write(descriptor, data) != len(data):  # the disk is full
            os.ftruncate(descriptor, before)
            raise RippleError(f"No room left on the disk to append to {path}.")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> list[Line]:
    """Read all result lines of a file, none where there is no file.

    A last line that a killed run left unfinished is dropped; one that only lacks its newline counts.
    """
    return [line for _, line in numbered_lines(path)]


def numbered_lines(path: Path) -> list[tuple[int, Line]]:
    """Read as `read_lines` does and return each line with its number."""
    if not path.exists():
        return []
    text = _read_text(path, "the results")
    lines: list[tuple[int, Line]] = []
    rows = text.split("\n")
    for number, row in enumerate(rows, start=1):
        if not row.strip():
            continue
        try:
            line = json.loads(row)
        except (ValueError, RecursionError):
            if number == len(rows):  # no newline behind it: cut off while it was written
                break
            raise RippleError(f"{path}, line {number}: not a result line.") from None
        if not isinstance(line, dict):
            raise RippleError(f"{path}, line {number}: not a result line.")
        lines.append((number, line))
    return lines


def truncate_partial_line(path: Path) -> None:
    """Make a file end with a newline: complete a whole last line, cut an unfinished one off."""
    if not path.exists():
        return
    data = path.read_bytes()
    if not data or data.endswith(b"\n"):
        return
    start = data.rfind(b"\n") + 1
    try:
        is_whole = isinstance(json.loads(data[start:]), dict)
    except (ValueError, RecursionError):
        is_whole = False
    with path.open("r+b") as file:
        if is_whole:
            file.seek(0, os.SEEK_END)
            file.write(b"\n")
        else:
            file.truncate(start)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a result file for one run; the system lets go of it whenever the process dies."""
    check_folder(path.parent, "the results' folder")
    new_folders = [folder for folder in path.absolute().parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        check_output(path, "the results", is_appended=True)
        is_new = not path.exists()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RippleError(f"Cannot write the results {path}: {error.strerror}.") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RippleError(
                f"Another run is writing {path}; wait for its end or name another file."
            ) from None
        yield
    finally:
        if is_new and os.fstat(descriptor).st_size == 0:  # the run failed before its first line
            path.unlink(missing_ok=True)
            for folder in new_folders:  # the deepest first
                with contextlib.suppress(OSError):
                    folder.rmdir()
        os.close(descriptor)


def write_lines(path: str | Path, lines: Iterable[Line], what: str = "the output") -> None:
    """Write a file of JSON lines that appears whole or not at all."""
    write_whole(path, _json_lines(lines), what)


def _json_lines(lines: Iterable[Line]) -> bytes:
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode()


def _read_text(path: str | Path, what: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise RippleError(f"Cannot read {what} {path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise RippleError(f"Cannot read {what} {path}: it is not UTF-8 text.") from None
