"""Result lines survive kills: whole lines stay, half lines go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ripple.analysis.lines import append_line, mend, read_lines
from ripple.analysis.statistics import wilson
from ripple.errors import RippleError


def test_lines_are_appended_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.jsonl"
    assert read_lines(path) == []
    for i in range(3):
        append_line(path, {"i": i})
    assert read_lines(path) == [{"i": 0}, {"i": 1}, {"i": 2}]


def test_a_line_cut_off_by_a_kill_is_dropped_and_mended(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"i": 0}\n{"i": 1}\n{"i": ')
    assert read_lines(path) == [{"i": 0}, {"i": 1}]
    mend(path)
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


def test_a_broken_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"i": 0}\noops\n{"i": 1}\n')
    with pytest.raises(RippleError, match="line 2: not a result line"):
        read_lines(path)


@pytest.mark.parametrize(
    "right, n, low, high",
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (90, 100, 0.8256, 0.9448), (10, 10, 0.7225, 1.0)],
)
def test_wilson_intervals(right: int, n: int, low: float, high: float) -> None:
    assert wilson(right, n) == pytest.approx((low, high), abs=1e-4)
