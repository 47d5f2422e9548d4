"""One decoding step at full model size: its time, its share of the roofline, the host's part, the memory.

Every combination of model shape, dtype, prompt length, cache, number of candidates and batch is one line of
the result file, written as soon as it is measured. A step is one engine tick, from asks to answers, with the
statistics of RPS; weights are random, which changes no cost. The equality checks run first, so that nothing
fast and wrong is timed.

Models that attend block by block have two forwards more under their cache: the prefill, and the opening,
which stores the block before (SDAR and LLaDA2 open the next block with it). With `in_thread` a step is timed
in the engine's own thread, beside a busy event loop.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from ripple.analysis.plots import draw_beside
from ripple.analysis.speed import step_figure, step_tables
from ripple.bench import in_thread
from ripple.bench.experts import experts_hit
from ripple.bench.fill import fill
from ripple.bench.full_size import Networks, check_device, device_name, listed_dtypes, ordinary_tokens
from ripple.bench.machine import Ceilings, ceilings, queued_ms, roof_ms
from ripple.bench.scripts import Hold
from ripple.check.paths import check_paths
from ripple.engine.blocks import suits
from ripple.engine.engine import Engine
from ripple.engine.graphs import MANY_ROWS
from ripple.engine.reduce import reduce_tick
from ripple.engine.request import Request
from ripple.engine.runner import DeviceRunner
from ripple.engine.work import Work
from ripple.errors import RippleError
from ripple.fields import param
from ripple.files import Line, read_lines
from ripple.measurement import Measurement, listed, whole_numbers
from ripple.models.base import Model
from ripple.models.load import torch_device
from ripple.models.shapes import SHAPES, shape_named
from ripple.options import Options

PROMPTS, CACHES, BATCHES = (1000, 128, 4000), ("none", "dual", "prefix", "exact"), (1, 4, 16)
CANDIDATES = (0, 4, 1, 2, 8, 10)
LENGTH, BLOCK, MIDDLE = 256, 32, 4  # the block in the middle of the response is decoded
LEAST_TICKS, SECONDS_EACH = 3, 0.15
SLOW_MS = 300  # a step this long is exact enough when timed once
FORWARDS = ("step", "opening", "prefill")  # the last two of a cache that stores blocks
HOSTS = ("caller", "thread")  # whose thread runs the engine


class StepPoint(NamedTuple):
    """One combination."""

    shape: str
    n_layers: int
    prompt: int
    cache: str
    candidates: int
    batch: int
    dtype: str
    forward: str = "step"
    host: str = "caller"


@dataclass(frozen=True)
class StepTime(Measurement):
    """Time one decoding step at full model size, on a GPU, with its share of the roofline."""

    name = "step"

    out: Path | None = param(
        None, "result lines; none is results/step-DEVICE.jsonl; a run goes on where it ends"
    )
    shapes: str = param(",".join(SHAPES), "released shapes, joined by commas")
    device: str = param("auto", "cpu, cuda, cuda:N or auto")
    layers: int = param(0, "fewer layers than the released model has; 0 is all", within="[0, inf)")
    prompts: str = param(",".join(map(str, PROMPTS)), "prompt lengths in tokens, joined by commas")
    batches: str = param(",".join(map(str, BATCHES)), "requests at a time, joined by commas")
    caches: str = param(
        ",".join(CACHES), "caches, joined by commas; each is timed on the shapes that can have it"
    )
    candidates: str = param(",".join(map(str, CANDIDATES)), "tokens tried in a lookahead, joined by commas")
    dtypes: str = param("bf16", "of the layers' products, joined by commas: bf16, fp8")
    in_thread: bool = param(False, "time the engine's own thread beside a busy event loop, not the caller's")
    seconds: float = param(0.0, "start no new measurement after this long; 0 is no limit", within="[0, inf)")
    check: bool = param(True, "compare fast paths with plain ones first")

    def run(self) -> dict[str, Any]:
        """Measure what `out` lacks and return where it is."""
        points = list(self._points())
        target = torch_device(self.device)
        check_device(self.name, target, self.layers)
        out = self.out or Path("results") / f"step-{target.type}.jsonl"
        if self.check:
            check_paths(self.device)
        limits = ceilings(target, "fp8" in listed_dtypes(self.dtypes))
        networks = Networks(target, self.layers)

        def measure(point: StepPoint) -> Line:
            return _line(networks.get(point.shape, point.dtype), point, limits)

        n_new = fill(out, points, _point_of, measure, "steps", self.seconds)
        return {"bench": self.name, "new_lines": n_new, **draw(out), **limits.as_line()}

    def _points(self) -> Iterator[StepPoint]:
        """Yield the combinations, the smallest batch first."""
        for batch in whole_numbers("batches", self.batches, 1):
            for shape in listed(self.shapes):
                config = shape_named(shape, self.layers or None)
                caches = [name for name in listed(self.caches) if suits(Options(cache=name), config)]
                if not caches:
                    raise RippleError(f"{shape} can have none of the caches {self.caches}.")
                for dtype in listed_dtypes(self.dtypes, config):
                    for prompt in whole_numbers("prompts", self.prompts, 1):
                        for which in caches:
                            how = (shape, config.n_layers, prompt, which)
                            for n in whole_numbers("candidates", self.candidates):
                                yield StepPoint(*how, n, batch, dtype, host=HOSTS[self.in_thread])
                            if which == "exact" and not self.in_thread:
                                for forward in FORWARDS[1:]:
                                    yield StepPoint(*how, 0, batch, dtype, forward)


def _point_of(line: Line) -> StepPoint:
    return StepPoint(**{name: line[name] for name in StepPoint._fields if name in line})


def draw(out: Path) -> dict[str, str]:
    """Write the tables and the figure of a result file beside it, and name the files."""
    lines = read_lines(out)
    if not lines:
        return {"files": str(out)}
    best = {
        name: _best([line for line in lines if line["device"] == name])
        for name in {x["device"] for x in lines}
    }
    lines = [_under(best[line["device"]], line) for line in lines]
    limits = best[lines[-1]["device"]]
    fp8 = f" ({limits.fp8_tflop_s:.0f} in fp8)" if limits.fp8_tflop_s else ""
    text = (
        f"# One decoding step\n\nDrawn from `{out.name}`. {lines[-1]['device']}: a large copy moves "
        f"{limits.copy_tb_s:.2f} TB/s, a large product runs at {limits.matmul_tflop_s:.0f} TFLOP/s{fp8}, the "
        "best of all runs; the roof of a step is the larger of its arithmetic and its traffic at those "
        "speeds.\n\n"
    )
    return draw_beside(out, text + step_tables(lines), lambda figure: step_figure(lines, figure))


def _best(lines: list[Line]) -> Ceilings:
    """Return the highest limits that runs on one device have measured."""
    names = ("copy_tb_s", "matmul_tflop_s", "fp8_tflop_s")
    return Ceilings(*(max((line[name] for line in lines if name in line), default=None) for name in names))  # type: ignore[arg-type]


def _line(model: Model, point: StepPoint, limits: Ceilings) -> Line:
    """Measure one combination with an engine of its own."""
    _empty(model.device)
    before = _reserved(model.device)
    engine = Engine(model, max_batch=point.batch)
    requests = [engine.prepare(prompt, _options(model, point)) for prompt in _prompts(model, point)]
    for request in requests:
        engine.enqueue(request)
    step_ms, work = _held(engine, point, requests) if point.forward == "step" else _first(engine, point)
    on_device_ms = _device_ms(engine, work, 1 if step_ms > SLOW_MS else 5)
    memory = _reserved(model.device) - before
    facts = _facts(engine, work, point)
    for request in requests:
        request.cancel()
    if point.host == "thread":
        other = Engine(model, max_batch=point.batch)
        again = [other.prepare(prompt, _options(model, point)) for prompt in _prompts(model, point)]
        step_ms = in_thread.tick_ms(other, again, _n_before(model, point) + 3, 10 * SECONDS_EACH)
    line = {
        "bench": "step", **point._asdict(), **facts,
        "step_ms": round(step_ms, 4), "device_ms": round(on_device_ms, 4),
        "overhead_ms": round(step_ms - on_device_ms, 4),
        "memory_beside_weights_gb": round(memory / 1e9, 3), **limits.as_line(),
        "device": device_name(model.device), "torch": torch.__version__,
    }  # fmt: skip
    return _under(limits, line)


def _facts(engine: Engine, work: list[Work], point: StepPoint) -> Line:
    """Return how much a forward computes and reads."""
    layout, config = work[0].layout, engine.model.config
    row = layout.base.row
    n_live, n_canvas = len(row.pos), row.n_keys
    n_rows = point.batch * (n_live + point.candidates * BLOCK)
    facts: Line = {"positions": n_canvas, "live_rows": n_live, "rows": n_rows}
    if config.attention_block is None:
        return facts
    seen = n_live * n_canvas if row.limits is None else int(row.limits.sum())
    facts["pairs"] = point.batch * (seen + point.candidates * BLOCK * n_canvas)
    facts["read_rows"] = point.batch * sum(len(span.pos) for span in layout.spans)
    hit = experts_hit(cast(DeviceRunner, engine.runner), [one.layout for one in work])
    return facts if hit is None else facts | {"experts": round(hit, 1)}


def _under(limits: Ceilings, line: Line) -> Line:
    """Return a line with its roof, and its share of it, under these limits."""
    config = shape_named(line["shape"], line["n_layers"])
    n_head = line.get("read_rows", line["batch"] * BLOCK * (1 + line["candidates"]))
    of_blocks = (line["dtype"], line.get("pairs"), line.get("experts"))
    roof = roof_ms(config, limits, line["rows"], line["positions"], n_head, line["batch"], *of_blocks)
    return line | {"roof_ms": round(roof, 4), "share_of_roof": round(roof / line["step_ms"], 4)}


def _options(model: Model, point: StepPoint) -> Options:
    config = model.config
    decoder = Hold(point.candidates, MIDDLE, tokens=ordinary_tokens(config))
    return Options(decoder, LENGTH, config.attention_block or BLOCK, point.cache)


def _prompts(model: Model, point: StepPoint) -> Iterator[list[int]]:
    generator = torch.Generator().manual_seed(0)
    low = min(model.config.mask_id, model.config.vocab_size)
    for _ in range(point.batch):
        yield torch.randint(low, (point.prompt,), generator=generator).tolist()


def _n_before(model: Model, point: StepPoint) -> int:
    """Return how many forwards come before the block that is held."""
    config = model.config
    return 0 if config.attention_block is None else MIDDLE * (1 + config.causal_context)


def _held(engine: Engine, point: StepPoint, requests: list[Request]) -> tuple[float, list[Work]]:
    """Tick until a repeated forward has been captured; return the time of a tick and what it computes."""
    opening = point.cache != "none"
    by_graph = opening or point.prompt + LENGTH < MANY_ROWS
    # The block is opened; then run, captured, replayed; or run.
    for _ in range(_n_before(engine.model, point) + opening + (3 if by_graph else 1)):
        engine.tick()
    if engine.model.config.causal_context:
        engine.tick()  # its opening predicts one token, so that the block's first look comes after it
    step_ms = _tick_ms(engine)
    for request in requests:
        if request.error is not None:
            raise request.error
    return step_ms, [request.work() for request in requests]


def _first(engine: Engine, point: StepPoint) -> tuple[float, list[Work]]:
    """Tick to a prefill or an opening and run it again and again; return its time and what it computes."""
    for _ in range(_n_before(engine.model, point) if point.forward == "opening" else 0):
        engine.tick()
    run, times, done = engine.runner.run, list[float](), list[Work]()

    def repeated(work: Sequence[Work]) -> Any:
        done.extend(work)
        for _ in range(3):  # run, captured, replayed
            outcomes = run(work)
        while _wants_more(times):
            start = time.perf_counter()
            outcomes = run(work)
            times.append(time.perf_counter() - start)
        return outcomes

    engine.runner.run = repeated  # type: ignore[method-assign]
    try:
        engine.tick()
    finally:
        del engine.runner.run
    return statistics.median(times) * 1e3, done


def _tick_ms(engine: Engine) -> float:
    """Return the median time of a tick as its user sees it, answers on the host included."""
    times: list[float] = []
    while _wants_more(times):
        start = time.perf_counter()
        engine.tick()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def _wants_more(times: list[float]) -> bool:
    if times and times[0] > SLOW_MS / 1e3:
        return False
    return len(times) < LEAST_TICKS or (sum(times) < SECONDS_EACH and len(times) < 50)


def _device_ms(engine: Engine, work: list[Work], n: int) -> float:
    """Return the device's part of a tick."""
    runner = cast(DeviceRunner, engine.runner)

    def again() -> None:
        runner.release_inputs()
        reduce_tick(runner.model, runner.hidden_states([one.layout for one in work]), work)

    return queued_ms(again, runner.model.device, 2.0 + len(work), n)


def _empty(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def _reserved(device: torch.device) -> int:
    return torch.cuda.memory_reserved(device) if device.type == "cuda" else 0
