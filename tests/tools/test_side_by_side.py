"""The comparison of two versions pairs their turns point by point."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def tool() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "side_by_side.py"
    spec = importlib.util.spec_from_file_location("side_by_side", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_versions_are_told_apart_by_their_source(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.py").write_text("x = 1\n")
    before = tool().source_hash(tmp_path / "a")
    assert before == tool().source_hash(tmp_path / "a")
    (tmp_path / "a" / "one.py").write_text("x = 2\n")
    assert tool().source_hash(tmp_path / "a") != before


def test_the_ratio_is_of_medians_after_over_before() -> None:
    before = [{"step": 0.001}, {"step": 0.009}, {"step": 0.002}]
    after = [{"step": 0.003}, {"step": 0.003}, {"step": 0.0001}]
    told = tool().compared(before, after)["step"]
    assert told["after_over_before"] == 1.5 and told["before_ms"] == [1, 9, 2]
