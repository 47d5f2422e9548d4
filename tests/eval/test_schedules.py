"""`ripple bench schedules`: what decoders ask for on tasks, one line per item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ripple.eval.schedules import Schedules
from ripple.files import append_line, read_lines
from ripple.schedule import from_lists


def test_every_item_is_a_line_that_says_all_its_forwards(tmp_path: Path) -> None:
    out = tmp_path / "schedules.jsonl"
    bench = Schedules(
        out, tasks="words,algebra", items=1, decoders="glide,confidence", caches="dual,slide", length=64,
        device="cpu",
    )  # fmt: skip
    assert bench.run()["new"] == 4 and bench.run()["new"] == 0
    lines = read_lines(out)
    assert len(lines) == 2 * 4 and {line["item"] for line in lines} == {"words/test/0", "algebra/test/0"}
    for line in lines:
        forwards = from_lists(line["forwards"])
        assert len(forwards) == line["nfe"] and sum(1 + one.branches for one in forwards) == line["canvases"]
        filled = sorted(pos for one in forwards for pos in one.commits)
        assert filled == list(range(64)), "every position is filled once, the end fill included"


def test_models_are_recorded_under_the_caches_that_they_have(tmp_path: Path) -> None:
    how: dict[str, Any] = {
        "tasks": "words",
        "items": 1,
        "decoders": "confidence",
        "length": 32,
        "device": "cpu",
    }
    caches = {}
    for model in ("tiny-sdar", "tiny-llada"):
        Schedules(tmp_path / f"{model}.jsonl", model=model, **how).run()
        caches[model] = [line["cache"] for line in read_lines(tmp_path / f"{model}.jsonl")]
    assert caches == {
        "tiny-sdar": ["exact", "none"],
        "tiny-llada": ["dual", "dual:keep_prompt=true", "slide", "none"],
    }


def test_a_budget_is_recorded_under_each_load_by_the_given_step_times(tmp_path: Path) -> None:
    out, steps = tmp_path / "schedules.jsonl", tmp_path / "steps.jsonl"
    for rows in (1, 4096):  # full load: every row has its price
        line = {"bench": "step", "shape": "llada-8b", "prompt": 1000, "rows": rows, "step_ms": rows}
        append_line(steps, line | {"dtype": "fp8"})
    Schedules(
        out, tasks="words", items=4, decoders="glide", caches="dual", length=48, budgets="none,0",
        at_once="4", curve=steps, curve_dtype="fp8", device="cpu",
    ).run()  # fmt: skip
    lines = read_lines(out)
    canvases = {
        (x["budget"], x["at_once"]): sum(y["canvases"] for y in lines if y["budget"] == x["budget"])
        for x in lines
    }
    assert set(canvases) == {(None, None), (0.0, 4)}
    branches = [one[2] for x in lines if x["budget"] == 0 for one in x["forwards"]]
    assert max(branches) <= 1 < max(one[2] for x in lines for one in x["forwards"])
