"""Tables and figures are functions of the result lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ripple.analysis.plots import speed_quality
from ripple.analysis.tables import best_of_sweeps, decoder_tables, mean_table
from ripple.errors import RippleError


def line(
    method: str, accuracy: float, nfe: float, tps: float, setting: str = "", **more: Any
) -> dict[str, Any]:
    return {
        "model": "tiny", "cache": "none", "family": "words", "method": method, "setting": setting or method,
        "n": 100, "accuracy": accuracy, "interval": [accuracy - 0.05, min(1.0, accuracy + 0.05)], "nfe": nfe,
        "rows": nfe, "tps": tps,
    } | more  # fmt: skip


LINES = [
    line("default", 0.9, 256, 100),
    line("klass", 0.8, 64, 300, "klass(eps_kl=0.1)"),
    line("klass", 0.85, 128, 200, "klass"),
    line("rps", 0.9, 32, 600),
]
GOLDEN = """\
### tiny, words, cache none (n = 100)

| decoder | Acc | 95 % | NFE | NFE × | rows | tok/s | tok/s × |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| default | **90.0** | 85.0-95.0 | 256.0 | 1.00 | 256.0 | 100 | 1.00 |
| klass | 85.0 | 80.0-90.0 | 128.0 | 2.00 | 128.0 | 200 | 2.00 |
| rps | **90.0** | 85.0-95.0 | **32.0** | 8.00 | 32.0 | **600** | 6.00 |
"""


def test_the_table_equals_its_golden() -> None:
    assert decoder_tables(LINES) == GOLDEN


def test_sweeps_report_their_best_and_keep_all() -> None:
    assert [row["setting"] for row in best_of_sweeps(LINES)] == ["default", "klass", "rps"]
    assert "klass(eps_kl=0.1)" in decoder_tables(LINES, every=True)


def test_a_later_line_replaces_an_earlier_one() -> None:
    assert "| 91.0 |" in decoder_tables([*LINES, line("klass", 0.91, 128, 200, "klass")]).replace("**", "")


def test_means_are_taken_over_the_families() -> None:
    both = LINES + [row | {"family": "algebra", "accuracy": row["accuracy"] - 0.2} for row in LINES]
    assert "mean over 2 families" in mean_table(both)
    assert "| rps | **80.0** | **32.0** | 8.00 |" in mean_table(both)


def test_the_figure_is_written_and_says_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "figures" / "front.svg"
    speed_quality(LINES, path)
    assert path.read_text().count("<svg") == 1
    with pytest.raises(RippleError, match="no result lines with cache 'dual'"):
        speed_quality(LINES, path, cache="dual")
