"""The cost model: it reproduces what it was made from, and its simulation agrees with closed forms."""

from __future__ import annotations

import json
import random
import statistics
from importlib.util import find_spec
from pathlib import Path

import pytest

from ripple.bench.fleet import simulate
from ripple.bench.scale import LARGE, Scale, Workload, parallel_line, weights_gb
from ripple.bench.step_costs import BLOCK, WHOLE, StepCosts
from ripple.errors import RippleError
from ripple.files import read_lines
from ripple.models.shapes import shape_named

RESULTS = Path(__file__).parent.parent.parent / "results"
STEPS = RESULTS / "step-h200.jsonl"


@pytest.fixture(scope="module")
def costs() -> StepCosts:
    return StepCosts.read(STEPS, "llada-8b")


def test_measured_steps_cost_what_was_measured(costs: StepCosts) -> None:
    for line in read_lines(STEPS):
        if line["shape"] != "llada-8b" or line["cache"] == "prefix":
            continue
        at, ms = line["positions"], line["step_ms"]
        if line["cache"] == "dual":
            assert costs.cached_s(line["rows"], at) == pytest.approx(ms / 1e3)
        elif not line["candidates"]:
            assert costs.whole_s(line["batch"], at) == pytest.approx(ms / 1e3)
    assert costs.request_gb(1256) == pytest.approx(10.97 / 16)


def test_between_measured_sizes_costs_are_straight_and_above_them_rows_keep_their_price(
    costs: StepCosts,
) -> None:
    low, high = costs.cached_s(32, 1256), costs.cached_s(64, 1256)
    assert costs.cached_s(48, 1256) == pytest.approx((low + high) / 2)
    assert costs.cached_s(8, 1256) == low and costs.cached_s(0, 1256) == 0
    assert costs.cached_s(2 * 5632, 1256) == pytest.approx(2 * costs.cached_s(5632, 1256))
    assert costs.whole_s(1, 384) < costs.whole_s(1, 800) < costs.whole_s(1, 1256)
    asks = [WHOLE, BLOCK, BLOCK, -256]
    parts = costs.whole_s(1, 1256) + costs.cached_s(64, 1256) + costs.cached_s(256, 1256)
    assert costs.tick_s(asks, 1256) == pytest.approx(parts)


WORK = Workload("rps", "dual", 1000, 256, normal=1.5, lookahead=3.0, branches=4.0)


def test_a_script_has_the_forwards_of_its_work() -> None:
    rng = random.Random(1)
    scripts = [WORK.script(rng) for _ in range(400)]
    assert all(script.count(WHOLE) == 8 and script[0] == WHOLE for script in scripts)
    assert statistics.mean(map(len, scripts)) == pytest.approx(WORK.forwards, rel=0.02)
    kept = Workload("rps", "dual:keep_prompt=true", 1000, 256, 1.0, 2.0, 4.0).script(rng)
    assert kept.count(WHOLE) == 1 and kept.count(-256) == 7 and kept.count(BLOCK * 5) == 16


def test_one_request_at_a_time_takes_the_sum_of_its_forwards(costs: StepCosts) -> None:
    at = WORK.positions
    seconds = 8 * (costs.whole_s(1, at) + 0.5 * costs.cached_s(32, at) + 3 * costs.cached_s(160, at))
    assert 1 / WORK.rate(costs, 1) == pytest.approx(seconds, rel=0.01)  # its rows are averaged


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_server_with_equal_requests_waits_as_in_the_closed_form(load: float) -> None:
    """M/D/1: the mean wait is load / (2 (1 - load)) of the time of a request."""
    served, busy = simulate([[1]] * 60_000, lambda asks: 1.0, 1, load, max_batch=1, seed=3)
    assert len(served) == 60_000 and all(one.ended == pytest.approx(one.begun + 1) for one in served)
    wait = statistics.mean(one.begun - one.arrived for one in served)
    assert wait == pytest.approx(load / (2 * (1 - load)), rel=0.07)
    assert busy == pytest.approx(load, rel=0.03)


def test_a_tick_is_shared_by_all_that_are_decoded() -> None:
    served, _ = simulate([[1, 1], [1, 1]], len, n_replicas=1, rate=1e9, max_batch=2)
    assert [round(one.ended) for one in served] == [3, 4], (
        "the second joins when the first tick of 1 s is over"
    )
    served, _ = simulate([[1, 1], [1, 1]], len, n_replicas=1, rate=1e9, max_batch=1)
    assert [round(one.ended) for one in served] == [2, 4]
    assert round(served[1].begun) == 2


def test_two_replicas_share_what_comes() -> None:
    served, busy = simulate([[1]] * 4000, lambda asks: 1.0, 2, 1.0, max_batch=1)
    assert busy == pytest.approx(0.5, rel=0.1) and len(served) == 4000
    alone, _ = simulate([[1]] * 4000, lambda asks: 1.0, 1, 0.5, max_batch=1)
    waits = [statistics.mean(x.begun - x.arrived for x in which) for which in (served, alone)]
    assert waits[0] < waits[1]


def test_a_full_replica_does_what_the_closed_form_says(costs: StepCosts) -> None:
    rng = random.Random(2)
    scripts = [WORK.script(rng) for _ in range(300)]
    served, busy = simulate(scripts, lambda asks: costs.tick_s(asks, WORK.positions), 1, 1e3, max_batch=8)
    middle = [one.ended for one in served][30:270]
    rate = (len(middle) - 1) / (middle[-1] - middle[0])
    assert busy == pytest.approx(1, abs=0.01) and rate == pytest.approx(WORK.rate(costs, 8), rel=0.03)


def test_the_lines_say_what_was_measured_and_hang_together(tmp_path: Path) -> None:
    out = tmp_path / "scale.jsonl"
    Scale(
        out=out,
        steps=STEPS,
        throughputs=RESULTS / "throughput-h200.jsonl",
        host=tmp_path / "none",
        gpus="1,2",
    ).run()
    lines = read_lines(out)
    checks = [line for line in lines if line["what"] == "check"]
    assert len(checks) == 16 and all(abs(line["error"]) < 0.2 for line in checks)
    assert all(abs(line["error"]) < 0.03 for line in checks if line["batch"] == 1)
    for line in lines:
        if line["what"] in ("gpu", "fleet"):
            tps = line["rps"] * line["answer"] / line.get("gpus", 1)
            assert line["usd_per_million"] == pytest.approx(4 / 3600 / tps * 1e6, rel=0.01)
    fleets = {(line["gpus"], line["load"]): line for line in lines if line["what"] == "fleet"}
    for gpus in (1, 2):
        assert fleets[gpus, 0.5]["p99_s"] < fleets[gpus, 0.95]["p99_s"]
        assert "proxy_cores" not in fleets[gpus, 0.5], "no host was measured"
    text = out.with_suffix(".md").read_text()
    assert "## One model on several GPUs: computed, not measured" in text
    assert out.with_suffix(".svg").exists() == (find_spec("matplotlib") is not None)


def test_hosts_are_taken_from_their_lines(tmp_path: Path) -> None:
    host = tmp_path / "host.jsonl"
    rows = [
        {"through": "server", "stream": "text", "cpu_ms": 4.0, "proxy_cpu_ms": 0.0, "bytes_per_token": 30},
        {
            "through": "server",
            "stream": "canvas",
            "cpu_ms": 5.0,
            "proxy_cpu_ms": 0.0,
            "bytes_per_token": 1300,
        },
        {"through": "ray", "stream": "text", "cpu_ms": 9.0, "proxy_cpu_ms": 8.0, "bytes_per_token": 30},
    ]
    host.write_text("".join(json.dumps(row) + "\n" for row in rows))
    how = {
        "steps": STEPS,
        "throughputs": tmp_path / "none",
        "gpus": "8",
        "host": host,
        "out": tmp_path / "s.jsonl",
    }
    Scale(**how).run()  # type: ignore[arg-type]
    line = next(line for line in read_lines(tmp_path / "s.jsonl") if line["what"] == "fleet")
    assert (
        line["proxy_cores"] == pytest.approx(line["rps"] * 8 / 1e3, abs=0.001)
        and line["rps_of_one_proxy"] == 125
    )
    assert line["text_share"] == pytest.approx(line["rps"] * 256 * 30 * 8 / 25e9, rel=0.01)
    host.write_text(json.dumps(rows[0]) + "\n")
    with pytest.raises(RippleError, match="measure it again"):
        Scale(**how).run()  # type: ignore[arg-type]


def test_what_was_never_measured_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text("")
    with pytest.raises(RippleError, match="has no steps of llada-8b"):
        StepCosts.read(tmp_path / "none.jsonl", "llada-8b")


def test_more_devices_read_less_and_wait_for_each_other() -> None:
    one, two, eight = (parallel_line(n) for n in (1, 2, 8))
    assert (one["fits"], two["fits"]) == (False, True) and one["reduce_ms"] == 0
    assert eight["read_ms"] == pytest.approx(one["read_ms"] / 8, abs=0.01)
    assert eight["reduce_ms"] > two["reduce_ms"] > 2 * LARGE["n_layers"] * 0.010
    assert eight["step_ms"] < two["step_ms"] < one["step_ms"]
    assert weights_gb(shape_named("llada-8b")) == pytest.approx(16, rel=0.02)
