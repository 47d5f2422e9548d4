"""`ripple bench concurrency`: decoders under load, by the clock and by prices measured elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from ripple.engine.prompts import token_ids
from ripple.errors import RippleError
from ripple.eval.concurrency import Concurrency, step_curve
from ripple.eval.sweep import open_engine
from ripple.files import append_line, read_lines
from ripple.tasks import find_task

STEPS = Path(__file__).parents[2] / "results" / "step-h200.jsonl"


def test_the_prices_are_the_measured_steps_and_never_fall() -> None:
    lines = [line for line in read_lines(STEPS) if (line["shape"], line["prompt"]) == ("llada-8b", 1000)]
    curve = step_curve(lines, "llada-8b", 1000)
    seconds = [curve.seconds[rows] for rows in sorted(curve.seconds)]
    assert seconds == sorted(seconds)
    assert curve.at(32) == pytest.approx(min(x["step_ms"] for x in lines if x["rows"] == 32) / 1e3)
    with pytest.raises(RippleError, match="no step times of llada-8b with a prompt of 7 tokens"):
        step_curve(lines, "llada-8b", 7)


def test_a_budget_saves_rows_under_load_and_a_second_run_adds_nothing(tmp_path: Path) -> None:
    out, steps = tmp_path / "load.jsonl", tmp_path / "steps.jsonl"
    for rows in (1, 4096):  # full load: every row has its price
        append_line(
            steps, {"bench": "step", "shape": "llada-8b", "prompt": 128, "rows": rows, "step_ms": rows}
        )
    bench = Concurrency(
        out, tasks="words", decoders="confidence,glide", budgets="none,0", at_once="1,4", items=4,
        length=48, curve=steps, device="cpu",
    )  # fmt: skip
    assert bench.run()["new_lines"] == 6 and bench.run()["new_lines"] == 0
    rows_of = {(x["decoder"], x["budget"], x["at_once"]): x for x in read_lines(out)}
    assert rows_of["confidence", None, 4]["ticks"] < rows_of["confidence", None, 1]["ticks"]
    free, limited = rows_of["glide", None, 4], rows_of["glide", 0.0, 4]
    assert limited["rows"] < free["rows"] and limited["nfe"] > free["nfe"]
    assert limited["priced_seconds"] == pytest.approx(limited["rows"] / 1e3)
    assert "| 4 | glide | 0 |" in out.with_suffix(".md").read_text()


def test_prompts_can_be_priced_as_longer_ones_and_dtypes_have_their_own_prices(tmp_path: Path) -> None:
    steps = tmp_path / "steps.jsonl"
    for rows, dtype in ((1, "fp8"), (4096, "fp8"), (1, "bf16")):
        line = {"bench": "step", "shape": "llada-8b", "prompt": 1000, "rows": rows, "step_ms": rows}
        append_line(steps, line | {"dtype": dtype})
    how = {"tasks": "words", "decoders": "rps", "budgets": "none", "at_once": "2", "items": 2, "length": 48}
    own, longer = tmp_path / "own.jsonl", tmp_path / "longer.jsonl"
    for out, n in ((own, 0), (longer, 1000)):
        Concurrency(
            out, curve=steps, prompt=1000, curve_dtype="fp8", priced_prompt=n, device="cpu", **how  # type: ignore[arg-type]
        ).run()  # fmt: skip
    (short,), (long,) = read_lines(own), read_lines(longer)
    assert short["priced_seconds"] == pytest.approx(short["rows"] / 1e3)
    prompts = [len(load_tokens(item)) for item in range(2)]
    n_openings = 2  # of each request: two blocks, and the dual cache computes the prompt in both
    more = sum(n_openings * (1000 - n) for n in prompts)
    assert long["priced_seconds"] - short["priced_seconds"] == pytest.approx(more / 1e3)
    assert long["curve"].endswith("fp8; prompts priced as 1000 tokens")


def load_tokens(item: int) -> list[int]:
    engine = open_engine("tiny-llada", "cpu")
    prompt = find_task("words").test_items(item + 1)[item].prompt
    return token_ids(prompt, engine.tokenizer, engine.model.config).tolist()


def test_a_budget_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RippleError, match="budgets must be numbers or none, got 'much'"):
        Concurrency(tmp_path / "x.jsonl", budgets="much", device="cpu").run()
