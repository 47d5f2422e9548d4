"""One decoding step at full model size: its time, its share of the roofline, the host's part, the memory.

Run on a GPU: `ripple bench step`. Every combination of model shape, prompt length, cache, number of
candidates and batch is one line of the result file, written as soon as it is measured. A step is one engine
tick, from asks to answers, with the statistics of RPS; weights are random, which changes no cost. The
equality checks run first, so that nothing fast and wrong is timed.
"""

from __future__ import annotations

import gc
import importlib.util
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ripple.analysis.lines import Line, append_line, mend, read_lines
from ripple.analysis.speed import step_figure, step_tables
from ripple.bench import equality
from ripple.bench.machine import Ceilings, ceilings, queued_ms, roof_ms
from ripple.bench.scripts import Hold
from ripple.caches import cache
from ripple.engine.engine import Engine
from ripple.engine.graphs import MANY_ROWS
from ripple.engine.hear import reduce_tick
from ripple.engine.result import Settings
from ripple.engine.session import Session
from ripple.models.load import torch_device
from ripple.models.shapes import SHAPES, random_network, shape_named
from ripple.models.transformer import Transformer

PROMPTS, CACHES, BATCHES = (1000, 128, 4000), ("none", "dual", "prefix"), (1, 4, 16)
CANDIDATES = (0, 4, 1, 2, 8, 10)
LENGTH, BLOCK, MIDDLE = 256, 32, 4  # the block in the middle of the response is decoded
LEAST_TICKS, SECONDS_EACH = 3, 0.15
SLOW_MS = 300  # a step this long is exact enough when timed once
KEY = ("shape", "n_layers", "prompt", "cache", "candidates", "batch")


class Point(NamedTuple):
    """One combination."""

    shape: str
    n_layers: int
    prompt: int
    cache: str
    candidates: int
    batch: int


def measure(
    out: Path | None = None, shapes: str = ",".join(SHAPES), device: str = "auto", layers: int = 0,
    prompts: str = ",".join(map(str, PROMPTS)), batches: str = ",".join(map(str, BATCHES)),
    caches: str = ",".join(CACHES), candidates: str = ",".join(map(str, CANDIDATES)), seconds: float = 0,
    check: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Measure what `out` lacks, for at most `seconds` if given, and return where it is."""
    points = list(_points(shapes, layers, prompts, caches, candidates, batches))
    target = torch_device(device)
    out = out or Path("results") / f"step-{target.type}.jsonl"
    start = time.perf_counter()
    if check:
        equality.measure(device)
    mend(out)
    done = {tuple(line[name] for name in KEY) for line in read_lines(out)}
    limits = ceilings(target)
    todo = [point for point in points if tuple(point) not in done]
    models: dict[str, Transformer] = {}  # all of them stay: two large ones fit beside each other
    n_new = 0
    for point in todo:
        if seconds and time.perf_counter() - start > seconds:
            break
        if point.shape not in models:
            models[point.shape] = random_network(
                shape_named(point.shape, layers or None), target, torch.bfloat16
            )
        line = _line(models[point.shape], point, limits)
        append_line(out, line)
        n_new += 1
        _tell(line, n_new, len(todo))
    draw(out)
    return {"bench": "step", "out": str(out), "new_lines": n_new, **limits.as_line()}


def draw(out: Path) -> None:
    """Write the tables and the figure of a result file beside it."""
    lines = read_lines(out)
    if not lines:
        return
    best = {
        name: _best([line for line in lines if line["device"] == name])
        for name in {x["device"] for x in lines}
    }
    lines = [_under(best[line["device"]], line) for line in lines]
    limits = best[lines[-1]["device"]]
    text = (
        f"# One decoding step\n\nDrawn from `{out.name}`. {lines[-1]['device']}: a large copy moves "
        f"{limits.copy_tb_s:.2f} TB/s, a large product runs at {limits.matmul_tflop_s:.0f} TFLOP/s, the best "
        "of all runs; the roof of a step is the larger of its arithmetic and its traffic at those speeds.\n\n"
    )
    out.with_suffix(".md").write_text(text + step_tables(lines), encoding="utf-8")
    if importlib.util.find_spec("matplotlib"):
        step_figure(lines, out.with_suffix(".svg"))


def _best(lines: list[Line]) -> Ceilings:
    """Return the highest limits that runs on one device have measured."""
    return Ceilings(*(max(line[name] for line in lines) for name in ("copy_tb_s", "matmul_tflop_s")))


def _points(
    shapes: str, layers: int, prompts: str, caches: str, candidates: str, batches: str
) -> Iterator[Point]:
    """Yield the combinations, the smallest batch first."""
    for batch in batches.split(","):
        for shape in shapes.split(","):
            n_layers = shape_named(shape, layers or None).n_layers
            for prompt in prompts.split(","):
                for which in caches.split(","):
                    for n in candidates.split(","):
                        yield Point(shape, n_layers, int(prompt), which, int(n), int(batch))


def _line(model: Transformer, point: Point, limits: Ceilings) -> Line:
    """Measure one combination with an engine of its own."""
    _empty(model.device)
    before = _reserved(model.device)
    engine = Engine(model, max_batch=point.batch)
    sessions = _held(engine, point)
    step_ms = _tick_ms(engine)
    on_device_ms = _device_ms(engine, sessions, 1 if step_ms > SLOW_MS else 5)
    base = sessions[0].lay_out(packed=True).base
    n_live, n_canvas = len(base.strip.pos), len(sessions[0].canvas.ids)
    n_rows = point.batch * (n_live + point.candidates * BLOCK)
    memory = _reserved(model.device) - before
    for session in sessions:
        session.cancel()
    line = {
        "bench": "step", **point._asdict(), "positions": n_canvas, "live_rows": n_live, "rows": n_rows,
        "step_ms": round(step_ms, 4), "device_ms": round(on_device_ms, 4),
        "overhead_ms": round(step_ms - on_device_ms, 4),
        "memory_beside_weights_gb": round(memory / 1e9, 3), **limits.as_line(),
        "device": _name(model.device), "torch": torch.__version__,
    }  # fmt: skip
    return _under(limits, line)


def _under(limits: Ceilings, line: Line) -> Line:
    """Return a line with its roof, and its share of it, under these limits."""
    config = shape_named(line["shape"], line["n_layers"])
    n_head = line["batch"] * BLOCK * (1 + line["candidates"])
    roof = roof_ms(config, limits, line["rows"], line["positions"], n_head, line["batch"])
    return line | {"roof_ms": round(roof, 4), "share_of_roof": round(roof / line["step_ms"], 4)}


def _held(engine: Engine, point: Point) -> list[Session]:
    """Start requests that repeat one forward, and tick until that forward has been captured."""
    generator = torch.Generator().manual_seed(0)
    settings = Settings(Hold(point.candidates, MIDDLE), LENGTH, BLOCK, cache(point.cache))
    low = min(engine.model.config.mask_id, engine.model.config.vocab_size)
    sessions = []
    for _ in range(point.batch):
        prompt = torch.randint(low, (point.prompt,), generator=generator).tolist()
        sessions.append(engine.submit(prompt, settings))
    opening = point.cache != "none"
    by_graph = opening or point.prompt + LENGTH < MANY_ROWS
    for _ in range(opening + (3 if by_graph else 1)):  # run, captured, replayed; or run
        engine.tick()
    return sessions


def _tick_ms(engine: Engine) -> float:
    """Return the median time of a tick as its user sees it, answers on the host included."""
    times: list[float] = []
    while len(times) < LEAST_TICKS or (sum(times) < SECONDS_EACH and len(times) < 50):
        start = time.perf_counter()
        engine.tick()
        times.append(time.perf_counter() - start)
        if times[0] > SLOW_MS / 1e3:
            break
    return statistics.median(times) * 1e3


def _device_ms(engine: Engine, sessions: list[Session], n: int) -> float:
    """Return the device's part of a tick."""
    readings = [session.lay_out(packed=True) for session in sessions]

    def work() -> None:
        engine.settle()
        reduce_tick(engine.model, engine.hidden_states(readings), sessions, readings, None)

    return queued_ms(work, engine.model.device, 2.0 + len(sessions), n)


def _tell(line: Line, done: int, n_all: int) -> None:
    where = " ".join(str(line[name]) for name in KEY)
    print(
        f"[{done}/{n_all}] {where}: {line['step_ms']:.2f} ms, "
        f"{100 * line['share_of_roof']:.0f} % of the roof, host {line['overhead_ms']:.2f} ms, "
        f"{line['memory_beside_weights_gb']:.2f} GB",
        file=sys.stderr,
        flush=True,
    )


def _empty(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def _reserved(device: torch.device) -> int:
    return torch.cuda.memory_reserved(device) if device.type == "cuda" else 0


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
