"""Output files appear whole or not at all, and result lines survive kills."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ripple.errors import RippleError
from ripple.files import (
    append_line,
    check_folder,
    check_output,
    locked,
    parse_lines,
    read_lines,
    truncate_partial_line,
    write_lines,
    write_whole,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_whole_with_its_old_permissions(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    write_whole(path, "one")
    path.chmod(0o640)
    write_whole(path, b"two")
    assert path.read_text() == "two" and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert names(tmp_path) == ["out.txt"]


def test_links_are_written_through(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link, target = tmp_path / "link.txt", tmp_path / "far" / "real.txt"
    link.symlink_to(target)
    write_whole(link, "through")
    assert link.is_symlink() and target.read_text() == "through" and names(tmp_path / "far") == ["real.txt"]


def test_what_is_no_regular_file_is_refused_and_stays(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "no" / "where")
    for path, reason in (
        (fifo, "not a regular file"), (Path("/dev/null"), "not a regular file"), (tmp_path, "it is a folder"),
        (tmp_path / "no" / "file", "there is no folder"), (dangling, "there is no folder"),
        (fifo / "file", "there is no folder"), (Path("x" * 300), "File name too long"),
    ):  # fmt: skip
        for write in (check_output, lambda p: write_whole(p, "text")):
            with pytest.raises(RippleError, match=reason):
                write(path)
    assert stat.S_ISFIFO(fifo.stat().st_mode) and stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize("is_appended", [False, True])
def test_a_file_in_a_folder_that_takes_no_other_can_be_appended_to_alone(
    tmp_path: Path, is_appended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for an ordinary user whose file lies in somebody else's folder; root may write anywhere."""
    out = tmp_path / "out"
    out.write_text("before")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    if is_appended:
        assert check_output(out, is_appended=True) == out
    else:
        with pytest.raises(RippleError, match=f"no permission to write into {tmp_path}"):
            check_output(out)


def test_a_file_that_is_mounted_by_itself_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").write_text("before")
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "out")
    with pytest.raises(RippleError, match="a mount of its own and cannot be replaced"):
        check_output(tmp_path / "out")


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.txt"
    write_whole(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RippleError, match=r"Cannot write the report .*: No space left"):
        write_whole(path, "new", "the report")
    assert path.read_text() == "old" and names(tmp_path) == ["out.txt"]


def test_lines_that_cannot_be_made_leave_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="float values"):
        write_lines(tmp_path / "x.jsonl", [{"a": 1}, {"a": float("nan")}])
    assert names(tmp_path) == []


def test_a_folder_can_be_made_or_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert check_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b" and names(tmp_path) == ["file"]
    with pytest.raises(RippleError, match="is not a folder"):
        check_folder(tmp_path / "file" / "a")


# -- JSON lines ---------------------------------------------------------------------------------------------


def test_lines_are_appended_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.jsonl"
    assert read_lines(path) == []
    for i in range(3):
        append_line(path, {"i": i})
    assert read_lines(path) == [{"i": 0}, {"i": 1}, {"i": 2}]


def test_a_line_cut_off_by_a_kill_is_dropped_and_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"i": 0}\n{"i": 1}\n{"i": ')
    assert read_lines(path) == [{"i": 0}, {"i": 1}]
    truncate_partial_line(path)
    append_line(path, {"i": 2})
    assert read_lines(path) == [{"i": 0}, {"i": 1}, {"i": 2}]


def test_a_line_that_only_lacks_its_newline_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"i": 0}\n{"i": 1}')
    assert read_lines(path) == [{"i": 0}, {"i": 1}]
    truncate_partial_line(path)
    append_line(path, {"i": 2})
    assert read_lines(path) == [{"i": 0}, {"i": 1}, {"i": 2}]


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.jsonl"
    append_line(path, {"i": 0})
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:4]))
    with pytest.raises(RippleError, match="No room left"):
        append_line(path, {"i": 1})
    assert path.read_text() == '{"i": 0}\n'


@pytest.mark.parametrize("row", ["oops", "[1]", "3", "[" * 100_000, '{"a": ' * 100_000])
def test_a_broken_line_in_the_middle_is_an_error(tmp_path: Path, row: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"i": 0}\n' + row + '\n{"i": 1}\n')
    with pytest.raises(RippleError, match="line 2: not a result line"):
        read_lines(path)


@pytest.mark.parametrize("content", [b"\xff\xfe", b'{"a": 1}\nnope\n', b"[" * 100_000])
def test_a_file_that_is_no_json_gets_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(RippleError) as told:
        list(parse_lines(path, "the trace"))
    assert "\n" not in str(told.value)


def test_a_file_is_held_by_one_run_and_let_go_by_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    code = (
        f"from ripple.files import *; import time\nwith locked(__import__('pathlib').Path({str(path)!r})):\n"
    )
    code += (
        " append_line(__import__('pathlib').Path(" + repr(str(path)) + "), {}); print('held', flush=True); "
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code + "time.sleep(60)"], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    with pytest.raises(RippleError, match="Another run is writing"), locked(path):
        pass
    child.kill()
    child.wait()
    with locked(path):
        append_line(path, {"i": 1})
    assert read_lines(path) == [{}, {"i": 1}]


def test_a_run_that_writes_nothing_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with pytest.raises(KeyError), locked(path):
        raise KeyError
    assert names(tmp_path) == []
    path.write_text('{"i": 0}\n')
    with locked(path):
        pass
    assert read_lines(path) == [{"i": 0}]
    descriptor = os.open(path, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)
