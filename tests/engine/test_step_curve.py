"""What a forward costs by its rows, and how windows and lookaheads shrink where that is too much."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ripple
from ripple.canvas import MOST_ROWS
from ripple.decoders import DECODERS
from ripple.engine.step_curve import BLOCK, CANVASES, FEW_ROWS, StepCurve, row_limit

PROMPTS = [np.random.default_rng(seed).integers(0, 40, size=4).tolist() for seed in range(6)]
FLAT = StepCurve({32: 1.0, 1 << 20: 1.0})  # bound by the weights' traffic: rows are free
STEEP = StepCurve({1: 1.0, 64: 64.0, 128: 128.0})  # bound by arithmetic: each row costs the same


@pytest.fixture
def fresh(folders: dict[str, Path], family: str) -> ripple.Engine:
    """An engine without a curve."""
    return ripple.load(folders[family], device="cpu", dtype="float32")


@given(st.floats(1.0, 1000.0))
def test_rows_for_is_the_inverse_of_the_curve(seconds: float) -> None:
    rows = STEEP.rows_for(seconds)
    assert STEEP.at(rows) <= seconds < STEEP.at(rows + 1) or rows == 0


def test_the_curve_of_a_model_is_measured(fresh: ripple.Engine) -> None:
    curve = fresh.step_curve
    assert sorted(curve.seconds) == [n * BLOCK for n in CANVASES] and min(curve.seconds.values()) > 0
    assert curve.at(2 * 64 * BLOCK) == pytest.approx(2 * curve.seconds[64 * BLOCK])
    assert fresh.step_curve is curve, "once"


def test_the_limit_falls_with_the_requests_that_share_the_device(fresh: ripple.Engine) -> None:
    fresh.step_curve = StepCurve({32: 1.0, 512: 1.0, 1024: 2.0})
    request = fresh.submit(PROMPTS[0], decoder="rps", length=24, block=8)
    fresh.tick()
    limits = [row_limit(fresh.step_curve, [request.work()], n, 0.5) for n in (1, 4, 16, 64)]
    assert limits == sorted(limits, reverse=True) and limits[0] > 300 and limits[-1] < 3 * FEW_ROWS


@pytest.mark.parametrize("name", DECODERS)
def test_where_rows_are_free_a_budget_changes_nothing(fresh: ripple.Engine, name: str) -> None:
    fresh.step_curve = FLAT
    how = {"decoder": name, "length": 24, "block": 8}
    plain = fresh.generate(PROMPTS, **how)
    limited = fresh.generate(PROMPTS, **how, lookahead_budget=0.1)
    assert [(a.token_ids, a.nfe) for a in plain] == [(b.token_ids, b.nfe) for b in limited]
    assert not any(result.n_limited for result in limited)


@pytest.mark.parametrize("name", DECODERS)
def test_under_full_load_nothing_looks_ahead(fresh: ripple.Engine, name: str) -> None:
    fresh.step_curve = STEEP
    how = {"decoder": name, "length": 24, "block": 8, "lookahead_budget": 0.0, "trace": True}
    for result in fresh.generate(PROMPTS, **how):
        assert result.is_full and result.nfe_lookahead == 0
        assert result.n_limited == result.nfe and fresh.most_rows == FEW_ROWS
        limits = {e.data["most_rows"] for e in result.trace or [] if e.kind == "forward"}
        assert limits == {FEW_ROWS}, "the trace says so"


@pytest.mark.parametrize("name", ["rps", "glide", "glide/deep", "lopa", "ete"])
def test_between_the_two_a_lookahead_tries_the_most_plausible(fresh: ripple.Engine, name: str) -> None:
    fresh.step_curve = STEEP
    how = {"decoder": name, "length": 24, "block": 8, "lookahead_budget": 1.5, "trace": True}
    result = fresh.generate(PROMPTS[0], **how)
    forwards = [e.data for e in result.trace or [] if e.kind == "forward"]
    assert fresh.most_rows < MOST_ROWS and result.is_full and result.nfe_lookahead
    for before, data in pairwise(forwards):
        width = data["window"][1] - data["window"][0]
        assert data["canvases"] == 1 or data["canvases"] * width <= before["most_rows"]


def test_under_full_load_glide_reads_few_rows(fresh: ripple.Engine) -> None:
    how = {"decoder": "glide", "length": 64, "trace": True}
    widths = {}
    for name, curve in (("free", FLAT), ("full", STEEP)):
        fresh.step_curve = curve
        result = fresh.generate(PROMPTS[0], **how, lookahead_budget=0.0)
        windows = [e.data["window"] for e in result.trace or [] if e.kind == "forward"]
        widths[name] = max(stop - start for start, stop in windows[1:])
    assert widths == {"free": 36, "full": 8}


def test_those_without_a_budget_are_left_alone(fresh: ripple.Engine) -> None:
    fresh.step_curve = STEEP
    how = {"decoder": "rps", "length": 24, "block": 8}
    alone = fresh.generate(PROMPTS, **how)
    mixed = fresh.generate(PROMPTS, **how, lookahead_budget=[None, 0.0, None, 0.0, None, 0.0])
    for i in (0, 2, 4):
        assert (mixed[i].token_ids, mixed[i].nfe) == (alone[i].token_ids, alone[i].nfe)
    assert all(mixed[i].nfe_lookahead == 0 for i in (1, 3, 5))
