"""Decoders under load: what lookahead costs and gives when requests share a device, and what a budget does.

Real tasks are decoded in continuous batches of so many requests at a time. Beside the clock of this machine,
every forward is priced with step times that were measured elsewhere (`--curve`): with those of an H200 at
LLaDA-8B's size, a CPU tells what the same decoding would take there, its prompts as long as theirs if
`priced_prompt` says so. The `lookahead_budget` decides by the same prices.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ripple.analysis.plots import draw_beside
from ripple.analysis.speed import concurrency_tables
from ripple.analysis.statistics import pack_bits
from ripple.decoders import decoder
from ripple.decoders.base import Rule
from ripple.engine.engine import Engine
from ripple.engine.grouping import group_layouts
from ripple.engine.layout import BatchRow
from ripple.engine.step_curve import StepCurve
from ripple.engine.work import Work
from ripple.errors import RippleError
from ripple.eval.decoding import NamedPrompt, decode
from ripple.eval.facts import choose_model, weights_hash
from ripple.eval.runner import Scorer
from ripple.eval.sweep import TaskSource, open_engine
from ripple.fields import param, split_specs
from ripple.files import Line, append_line, read_lines, truncate_partial_line
from ripple.measurement import Measurement, listed, whole_numbers
from ripple.options import Options
from ripple.progress import Progress


class Load(NamedTuple):
    """What one line is about."""

    model: str
    task: str
    decoder: str
    cache: str
    budget: float | None
    at_once: int
    length: int
    n: int
    curve: str | None


@dataclass(frozen=True)
class Concurrency(Measurement):
    """Decode tasks with 1 to 64 requests at a time, with and without a budget for lookaheads."""

    name = "concurrency"

    out: Path | None = param(None, "result lines; none is results/concurrency-DEVICE.jsonl; a run is resumed")
    model: str = param("tiny-llada", "an embedded name, a folder or a hub id")
    tasks: str = param("words,algebra", "task families, joined by commas")
    decoders: str = param("confidence,rps,glide", "names, presets or name:field=value, joined by commas")
    cache: str = param("dual", "the cache of all of them")
    budgets: str = param("none,0.1,0.5", "lookahead budgets, joined by commas; none: every branch is tried")
    at_once: str = param("1,8,32,64", "requests at a time, joined by commas")
    items: int = param(128, "test items per task", within="[1, inf)")
    length: int = param(256, "response positions", within="[1, inf)")
    curve: Path | None = param(None, "lines of `ripple bench step`, whose times price each tick")
    shape: str = param("llada-8b", "the model shape of those lines")
    prompt: int = param(128, "the prompt length of those lines")
    priced_prompt: int = param(
        0, "price every prompt as one of so many tokens; 0: as it is", within="[0, inf)"
    )
    curve_dtype: str = param("bf16", "the dtype of those lines")
    device: str = param("auto", "cpu, cuda, cuda:N or auto")
    dtype: str = param("auto", "float32, bfloat16, fp8 or auto: bfloat16 on a GPU, float32 elsewhere")
    allow_code: bool = param(False, "run code that a model wrote, in the sandbox")

    def run(self) -> dict[str, Any]:
        """Measure what `out` lacks and draw its tables."""
        model, source = choose_model(self.model), TaskSource(allow_code=self.allow_code)
        for name in listed(self.tasks):
            source.check(name, [model])
        prices = read_curve(self.curve, self.shape, self.prompt, self.curve_dtype)
        engine = open_engine(model.given, self.device, self.dtype)
        out = self.out or Path("results") / f"concurrency-{engine.model.device.type}.jsonl"
        truncate_partial_line(out)
        done = {_load_of(line) for line in read_lines(out)}
        todo = [load for load in self._loads(model.name) if load not in done]
        with Progress("concurrency", len(todo)) as progress:
            for load in todo:
                append_line(out, _line(engine, source, load, prices, self.priced_prompt))
                progress.update(note=" ".join(map(str, load[:6])))
        text = "# Requests at a time\n\n" + concurrency_tables(read_lines(out))
        return {"bench": self.name, "new_lines": len(todo), **draw_beside(out, text)}

    def _loads(self, model: str) -> Iterator[Load]:
        curve = None if self.curve is None else f"{self.curve.name}: {self.shape}, prompt {self.prompt}"
        if curve is not None and self.curve_dtype != "bf16":
            curve += f", {self.curve_dtype}"
        if curve is not None and self.priced_prompt:
            curve += f"; prompts priced as {self.priced_prompt} tokens"
        for task in listed(self.tasks):
            for at_once in whole_numbers("at_once", self.at_once, 1):
                for spec in split_specs(self.decoders):
                    for budget in map(read_budget, listed(self.budgets)):
                        if budget is None or not isinstance(decoder(spec), Rule):  # rules never look ahead
                            how = (spec, self.cache, budget, at_once, self.length, self.items, curve)
                            yield Load(model, task, *how)


def read_curve(path: Path | None, shape: str, prompt: int, dtype: str) -> StepCurve | None:
    """Return what forwards cost by their rows, from a file of `ripple bench step`, if there is one."""
    return None if path is None else step_curve(read_lines(path), shape, prompt, dtype)


def step_curve(lines: list[Line], shape: str, prompt: int, dtype: str = "bf16") -> StepCurve:
    """Return what forwards cost by their rows, from lines of `ripple bench step`; never falling."""
    times: dict[int, float] = {}
    for line in lines:
        place = (line.get("shape"), line.get("prompt"), line.get("dtype", "bf16"))
        if line.get("bench") == "step" and place == (shape, prompt, dtype):
            times[line["rows"]] = min(line["step_ms"] / 1e3, times.get(line["rows"], float("inf")))
    if not times:
        which = shape if dtype == "bf16" else f"{shape} in {dtype}"
        raise RippleError(f"The file holds no step times of {which} with a prompt of {prompt} tokens.")
    most, seconds = 0.0, {}
    for rows in sorted(times):
        seconds[rows] = most = max(most, times[rows])
    return StepCurve(seconds)


def read_budget(text: str) -> float | None:
    """Return a lookahead budget of a list; `none` is no limit."""
    try:
        return None if text == "none" else float(text)
    except ValueError:
        raise RippleError(f"budgets must be numbers or none, got {text!r}.") from None


def _load_of(line: Line) -> Load:
    return Load(*(line[name] for name in Load._fields))


def _line(
    engine: Engine, source: TaskSource, load: Load, prices: StepCurve | None, priced_prompt: int
) -> Line:
    """Decode the items of a task with so many requests at a time."""
    task = source.task(load.task)
    items, scorer = task.test_items(load.n), Scorer(task)
    options = Options(
        load.decoder, load.length, cache=load.cache, end_fill=True, lookahead_budget=load.budget
    )
    prompts = [NamedPrompt(item.id, item.prompt, options) for item in items]
    engine.max_batch = load.at_once
    if prices is not None:
        engine.step_curve = prices
    for _ in decode(engine, prompts[:2]):  # warm up
        pass
    start = time.perf_counter()
    with _rows_of_ticks(engine, priced_prompt) as ticks:
        results = [result for _, result in sorted(decode(engine, prompts), key=lambda pair: pair[0])]
    seconds = time.perf_counter() - start
    n_tokens = sum(len(result.new_tokens) for result in results)
    verdicts = [verdict.right for verdict in scorer.judge(items, [result.text for result in results])]
    priced = None if prices is None else sum(prices.at(rows) for tick in ticks for rows in tick.priced)
    return {
        "bench": "concurrency", **load._asdict(), "weights": weights_hash(engine.folder),
        "device": engine.model.device.type, "accuracy": sum(verdicts) / len(items),
        "right": pack_bits(verdicts), "nfe": _mean([result.nfe for result in results]),
        "canvases": _mean([result.canvases for result in results]), "ticks": len(ticks),
        "rows": sum(tick.rows for tick in ticks), "new_tokens": n_tokens, "seconds": round(seconds, 3),
        "tps": round(n_tokens / seconds, 1),
        "priced_seconds": None if priced is None else round(priced, 4),
        "priced_tps": None if priced is None else round(n_tokens / priced, 1),
    }  # fmt: skip


class Tick(NamedTuple):
    """The rows that a tick computes."""

    rows: int
    priced: list[int]  # of each of its forwards, prompts as long as they are priced


@contextmanager
def _rows_of_ticks(engine: Engine, priced_prompt: int) -> Iterator[list[Tick]]:
    """Collect how many rows each tick computes."""
    ticks: list[Tick] = []
    run = engine.runner.run

    def counted(work: Sequence[Work]) -> Any:
        groups, _ = group_layouts([one.layout for one in work])
        prompts = {id(span.row): one.prompt_len for one in work for span in one.layout.spans}
        priced = [
            sum(_n_rows(row) + _n_more(row, prompts[id(row)], priced_prompt) for row in group.members)
            for group in groups
        ]
        ticks.append(Tick(sum(_n_rows(row) for group in groups for row in group.members), priced))
        return run(work)

    engine.runner.run = counted  # type: ignore[method-assign]
    try:
        yield ticks
    finally:
        del engine.runner.run


def _n_rows(row: BatchRow) -> int:
    return len(row.pos) + sum(some.ids.size for some in row.branches)


def _n_more(row: BatchRow, prompt: int, priced_prompt: int) -> int:
    """Return how many rows more a forward had that computes a whole prompt, if that is priced as longer."""
    is_whole = int(np.searchsorted(row.pos, prompt)) == prompt
    return priced_prompt - prompt if priced_prompt and is_whole else 0


def _mean(numbers: list[int]) -> float:
    return round(sum(numbers) / len(numbers), 3)
