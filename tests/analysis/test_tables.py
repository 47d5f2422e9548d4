"""Tables and figures are functions of the result lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ripple.analysis.ablation import ablation_figure
from ripple.analysis.plots import front, speed_quality
from ripple.analysis.statistics import pack_bits
from ripple.analysis.tables import (
    best_of_sweeps,
    cache_table,
    decoder_tables,
    mean_table,
    paired_table,
    search_table,
    sweep_table,
)
from ripple.errors import RippleError


def line(
    decoder: str, accuracy: float, nfe: float, tps: float, setting: str = "", **more: Any
) -> dict[str, Any]:
    return {
        "model": "tiny", "cache": "none", "task": "words", "decoder": decoder, "setting": setting or decoder,
        "n": 100, "accuracy": accuracy, "interval": [accuracy - 0.05, min(1.0, accuracy + 0.05)], "nfe": nfe,
        "canvases": nfe, "tps": tps,
    } | more  # fmt: skip


LINES = [
    line("default", 0.9, 256, 100),
    line("klass", 0.8, 64, 300, "klass:eps_kl=0.1"),
    line("klass", 0.85, 128, 200, "klass"),
    line("rps", 0.9, 32, 600),
]
GOLDEN = """\
### tiny, words, cache none (n = 100)

| decoder | Acc | 95 % | NFE | NFE × | canvases | tok/s | tok/s × |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| default | **90.0** | 85.0-95.0 | 256.0 | 1.00 | 256.0 | 100 | 1.00 |
| klass | 85.0 | 80.0-90.0 | 128.0 | 2.00 | 128.0 | 200 | 2.00 |
| rps | **90.0** | 85.0-95.0 | **32.0** | 8.00 | 32.0 | **600** | 6.00 |
"""


def test_the_table_equals_its_golden() -> None:
    assert decoder_tables(LINES) == GOLDEN


def test_nothing_is_divided_by_nothing() -> None:
    lines = [line("default", 0.9, 256, 0), line("rps", 0.9, 0, 600)]
    assert "| rps | **90.0** | 85.0-95.0 | **0.0** |  | 0.0 | **600** |  |" in decoder_tables(lines)


def test_sweeps_report_their_best_and_keep_all() -> None:
    assert [row["setting"] for row in best_of_sweeps(LINES)] == ["default", "klass", "rps"]
    assert "klass:eps_kl=0.1" in decoder_tables(LINES, every=True)


def test_a_later_line_replaces_an_earlier_one() -> None:
    assert "| 91.0 |" in decoder_tables([*LINES, line("klass", 0.91, 128, 200, "klass")]).replace("**", "")


def test_means_are_taken_over_the_families() -> None:
    both = LINES + [row | {"task": "algebra", "accuracy": row["accuracy"] - 0.2} for row in LINES]
    assert "mean over 2 families" in mean_table(both)
    # half width: 1.96 * sqrt((0.9 * 0.1 + 0.7 * 0.3) / 100) / 2 = 0.0537
    assert "| rps | **80.0** | 74.6-85.4 | **32.0** | 8.00 |" in mean_table(both)
    short = mean_table([*LINES, *(row | {"task": "algebra"} for row in LINES if row["decoder"] != "klass")])
    assert "klass" not in short, "a decoder that lacks a family has no mean to compare"


def test_a_mean_over_different_settings_says_so() -> None:
    other = [row | {"task": "algebra", "accuracy": 1 - row["accuracy"]} for row in LINES]
    assert "| klass, best of sweep |" in mean_table(LINES + other)


def test_pairs_are_counted_item_by_item() -> None:
    ours, theirs = line("rps", 0.5, 10, 1, n=4, right="c"), line("default", 0.75, 40, 1, n=4, right="b")
    row = paired_table([ours, theirs]).splitlines()[-1]
    # 1100 against 1011: ours alone solves the second item, theirs alone the third and fourth
    assert (
        row.startswith("| tiny | none | default | words | -25.0 |")
        and "| 1 | 2 | 1.000 | 10.0 : 40.0 |" in row
    )
    both = paired_table([x | {"task": f} for x in (ours, theirs) for f in ("words", "algebra")])
    assert "| all | -25.0 |" in both and "| 2 | 4 | 0.688 | 10.0 : 40.0 |" in both


def test_a_cache_is_compared_with_none_on_the_same_items() -> None:
    plain, dual = (
        line("rps", 0.5, 10, 1, n=4, cache=c, right=bits) for c, bits in (("none", "b"), ("dual", "c"))
    )
    head, _, row = cache_table([plain, dual]).splitlines()
    assert head == "| model | cache | against | decoder | words | all |"
    # half width: 1.96 * sqrt((3 / 4 - 0.25 ** 2) / 4)
    assert row == "| tiny | dual | none | rps | -25.0 ± 81.3 | -25.0 ± 81.3 |"
    others = [line | {"cache": f"dual:{line['cache']}", "task": "algebra"} for line in (plain, dual)]
    table = cache_table([plain, dual, *others]).splitlines()
    assert table[2:] == [row.replace("| rps |", "| rps |  |")], "nothing in common, nothing to compare"
    assert "| dual:none | dual:dual | rps | +25.0 ± 81.3 |" in cache_table(others)


def test_searches_are_shown_for_traced_lines_only() -> None:
    facts = {"searches": 5.0, "mean_candidates": 7.5, "committed": 0.9, "not_top_1": 0.25}
    traced = LINES[3] | {"search": facts, "nfe_normal": 20.0, "nfe_lookahead": 12.0}
    table = search_table([*LINES[:3], traced]).splitlines()
    assert table[2:] == ["| tiny | none | words | rps | 20.00 | 12.00 | 5.00 | 7.50 | 90.0 % | 25.0 % |"]


def test_the_front_holds_what_nothing_beats_in_both() -> None:
    assert front([(1, 90), (10, 92), (5, 91), (20, 80), (15, 79)]) == [(10, 92), (20, 80)]


def test_the_figure_is_written_and_says_what_is_missing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "figures" / "front.svg"
    speed_quality(LINES, path)
    assert path.read_text().count("<svg") == 1
    again = path.with_name("again.svg")
    speed_quality(LINES, again)
    assert again.read_bytes() == path.read_bytes(), "the same lines give the same file"
    with pytest.raises(RippleError, match="no result lines to draw"):
        speed_quality(LINES, path, caches=["dual"])


def test_a_sweep_is_compared_with_its_decoders_own_setting_on_the_items_both_have() -> None:
    own = line("glide", 0.75, 6, 1, n=8, right=pack_bits([True] * 6 + [False] * 2))
    wide = line("glide", 0.5, 5, 1, "glide:width=64", n=4, right=pack_bits([True, True, False, False]))
    table = sweep_table([own, wide])
    assert "| tiny | none | glide | 8 | 75.0 | 6.00 | 6.0 |  |" in table
    assert "| tiny | none | glide:width=64 | 4 | 50.0 | 5.00 | 5.0 | -50.0 ± 49.0 |" in table


def test_a_decoders_settings_are_drawn_beside_its_own(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    own = line("glide", 0.75, 6, 1, n=4, right=pack_bits([True] * 3 + [False]))
    wide = line("glide", 0.5, 5, 1, "glide:width=64", n=4, right=pack_bits([True, True, False, False]))
    path = tmp_path / "glide.svg"
    ablation_figure([own, wide], path)
    assert path.read_text().count("<svg") == 1 and "glide:width=64" in path.read_text()
    with pytest.raises(RippleError, match="no result lines of rps"):
        ablation_figure([own, wide], path, "rps")
