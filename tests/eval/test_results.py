"""Two runs compared item by item."""

from __future__ import annotations

from typing import Any

import pytest

from ripple.analysis.statistics import Paired
from ripple.errors import RippleError
from ripple.eval.results import StoredRun, compare


def row(item: str, right: bool, nfe: int, digest: str = "same") -> dict[str, Any]:
    return {"item": item, "right": right, "nfe": nfe, "digest": digest}


def run(*rows: dict[str, Any]) -> StoredRun:
    return StoredRun({}, list(rows))


def test_comparison_is_over_the_items_in_common() -> None:
    a = run(row("1", True, 10), row("2", False, 20), row("3", True, 30), row("only a", True, 999))
    b = run(
        row("3", False, 3), row("2", True, 2), row("1", True, 1), row("x", False, 9), row("y", True, 9)
    )  # fmt: skip
    both = compare(a, b)
    assert (both.n, both.only_a, both.only_b, both.p) == (3, 1, 1, 1.0)
    assert (both.accuracy_a, both.accuracy_b, both.difference) == (2 / 3, 2 / 3, 0.0)
    assert both.interval == Paired(3, 1, 1).interval
    assert (both.nfe_a, both.nfe_b, both.left_out_a, both.left_out_b) == (20, 2, 1, 2)
    assert both.nfe_interval[0] < -18 < both.nfe_interval[1]  # steps -9, -18, -27


def test_comparison_refuses_other_items() -> None:
    with pytest.raises(RippleError, match="no item in common"):
        compare(run(row("1", True, 1)), run(row("2", True, 1)))
    with pytest.raises(RippleError, match="different problems by item 1"):
        compare(run(row("1", True, 1)), run(row("1", True, 1, "other")))
