"""Every decoder on every task family: accuracy with an interval, forwards, rows, tokens per second.

Run: `ripple bench decoders`, or on a GPU `ripple bench decoders --device cuda --items 1000 --workers 8`. Each
setting becomes one line of the result file as soon as it is done; a killed run goes on where it stopped.
A unit of work is one model, family and cache with all its settings, so that `default`, which speed-ups
are taken over, is measured in the same process and the same minute as the others.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import platform
import queue
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ripple.analysis.lines import Line, append_line, mend, read_lines
from ripple.analysis.plots import speed_quality
from ripple.analysis.statistics import wilson
from ripple.analysis.tables import cache_table, decoder_tables, mean_table, paired_table, search_table
from ripple.bench import grid
from ripple.benchmarks import cut
from ripple.caches import cache
from ripple.decoders import DECODERS, Decoder, Default
from ripple.engine.engine import Engine
from ripple.engine.load import load
from ripple.engine.prompts import Prompt
from ripple.engine.result import Result
from ripple.errors import unknown
from ripple.models.load import torch_device
from ripple.tasks import TASKS, Task

BATCH = {"cpu": 8, "cuda": 512}  # requests per tick
N_TRACED = 100  # items of which RPS's searches are traced
KEY = ("model", "family", "cache", "setting", "n", "length")  # what makes a result line
SWEEP_CACHE = "none"  # sweeps run without a cache; the other caches get one setting per decoder


class Unit(NamedTuple):
    """One process's piece of work."""

    model: str
    family: str
    cache: str
    settings: tuple[Decoder, ...]
    n: int
    length: int
    device: str


class Measured(NamedTuple):
    """One setting on one family: its result line, and what the line was made from."""

    line: Line
    results: list[Result]
    traced: list[Result]  # for RPS: the first items once more, with traces


def measure(
    out: Path | None = None, models: str = ",".join(grid.MODELS), device: str = "auto",
    families: str = ",".join(grid.FAMILIES), caches: str = "", items: int = 0, length: int = 0,
    workers: int = 1, sweeps: bool = False, decoders: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Run what is missing in `out`, of all decoders or those named; return its place and the new lines."""
    on_gpu = torch_device(device).type == "cuda"
    n, length = items or (1000 if on_gpu else 4), length or (256 if on_gpu else 128)
    caches = caches or ",".join(grid.CACHES if on_gpu else ("none",))
    out = out or Path("results") / f"decoders-{'gpu' if on_gpu else 'cpu'}.jsonl"
    mend(out)
    done = {tuple(line[name] for name in KEY) for line in read_lines(out)}
    todo = list(_units(models, families, caches, done, n, length, device, sweeps or on_gpu, decoders))
    n_lines, n_all = 0, sum(len(unit.settings) for unit in todo)
    start = time.perf_counter()
    for line in run_all(_run, todo, workers):
        append_line(out, line)
        n_lines += 1
        _tell(line, n_lines, n_all, time.perf_counter() - start)
    draw(out)
    return {
        "bench": "decoders",
        "out": str(out),
        "new_lines": n_lines,
        "seconds": round(time.perf_counter() - start, 1),
    }


def draw(out: Path) -> None:
    """Write the tables and the speed-quality figure of a result file beside it.

    What the lines cannot say of how they came about stands in `<name>.notes.md` and is copied in.
    """
    lines, notes = read_lines(out), out.with_suffix(".notes.md")
    published = [line for line in lines if line["setting"] in _published(line["model"])]
    parts = [f"# Decoders\n\nDrawn from `{out.name}`.\n"]
    if notes.exists():
        parts.append(notes.read_text(encoding="utf-8"))
    parts += ["## Means, published settings\n", mean_table(published)]
    if len(published) < len(lines):
        allowed = [line for line in lines if line["method"] != "rps" or line in published]
        parts += ["## Means, the most accurate setting of each baseline's sweep\n", mean_table(allowed)]
    parts += ["## RPS against each decoder, item by item (exact McNemar)\n", paired_table(published)]
    if len({line["cache"] for line in published}) > 1:
        title = "## What a cache costs each decoder, item by item (points, 95 %)\n"
        parts += [title, cache_table(published)]
    parts += ["## RPS's forwards and searches\n", search_table(lines)]
    parts += ["## By family, every setting\n", decoder_tables(lines, every=True)]
    out.with_suffix(".md").write_text("\n".join(parts), encoding="utf-8")
    if lines and importlib.util.find_spec("matplotlib"):
        speed_quality(lines, out.with_suffix(".svg"))


def _published(model: str) -> set[str]:
    return {setting.describe() for setting in grid.main_settings(model)}


def _units(
    models: str, families: str, caches: str, done: set[Any], n: int, length: int, device: str, sweeps: bool,
    decoders: str = "",
) -> Iterator[Unit]:  # fmt: skip
    """Yield the work that has no result line yet."""
    named = decoders.split(",") if decoders else list(DECODERS)
    for name, known in ((families.split(","), TASKS), (named, DECODERS)):
        for one in name:
            if one not in known:
                raise unknown("family or decoder", one, known)
    for which in [cache(one).describe() for one in caches.split(",")]:
        for model in models.split(","):
            wanted = grid.all_settings if sweeps and which == SWEEP_CACHE else grid.main_settings
            for family in families.split(","):
                missing = tuple(
                    s
                    for s in wanted(model)
                    if s.name in named and (model, family, which, s.describe(), n, length) not in done
                )
                if missing:
                    yield Unit(model, family, which, missing, n, length, device)


def run_all(work: Callable[[Any], Iterator[Line]], units: Sequence[Any], workers: int) -> Iterator[Line]:
    """Do the work of all units here, or in several processes that share the device."""
    if workers <= 1:
        for unit in units:
            yield from work(unit)
        return
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    with context.Manager() as manager:
        lines: Any = manager.Queue()
        with context.Pool(workers) as pool:
            job = pool.starmap_async(_run_into, [(lines, work, unit) for unit in units], chunksize=1)
            while not job.ready() or not lines.empty():
                try:
                    yield lines.get(timeout=0.2)
                except queue.Empty:
                    continue
            job.get()


def _run_into(lines: Any, work: Callable[[Any], Iterator[Line]], unit: Any) -> None:
    torch.set_num_threads(1)
    for line in work(unit):
        lines.put(line)


def _run(unit: Unit) -> Iterator[Line]:
    """Load the unit's model and yield a line for each setting."""
    for found in measure_unit(unit, open_engine(unit.model, unit.device), TASKS[unit.family]):
        yield found.line


def open_engine(model: str, device: str) -> Engine:
    """Load a model in fp32 on the CPU, bf16 on a GPU: what users get by default."""
    return load(model, device=device, max_batch=BATCH[torch_device(device).type])


def measure_unit(
    unit: Unit, engine: Engine, task: Task, chat: bool = False, stops: Sequence[str] = (),
    known: dict[tuple[str, str], bool] | None = None,
) -> Iterator[Measured]:  # fmt: skip
    """Decode and score one family with each setting; responses are cut at `stops` before scoring.

    `known` holds verdicts, (item, text) -> right, since decoders often agree; new ones are added to it.
    """
    known = {} if known is None else known
    problems = task.test_items(unit.n)
    how: dict[str, Any] = {"length": unit.length, "block": 32, "cache": cache(unit.cache)}
    prompts: list[Prompt] = [
        [{"role": "user", "content": item.prompt}] if chat else item.prompt for item in problems
    ]
    engine.generate(prompts[0], decoder=Default(k=32), **how)  # warm up
    for setting in unit.settings:
        start = time.perf_counter()
        results = engine.generate(prompts, decoder=setting, **how)
        seconds = time.perf_counter() - start
        texts = [cut(result.text, stops) for result in results]
        fresh = [
            (item, text) for item, text in zip(problems, texts, strict=True) if (item.id, text) not in known
        ]
        verdicts = task.score_many([item for item, _ in fresh], [text for _, text in fresh])
        known.update({(item.id, text): right for (item, text), right in zip(fresh, verdicts, strict=True)})
        right = [known[item.id, text] for item, text in zip(problems, texts, strict=True)]
        traced: list[Result] = []
        if setting.name == "rps":  # traced apart from the timed run
            traced = engine.generate(prompts[:N_TRACED], decoder=setting, trace=True, **how)
        facts = {"search": search_facts(traced) if traced else None}
        yield Measured(_line(unit, setting, results, right, seconds, engine) | facts, results, traced)


def _line(
    unit: Unit, setting: Decoder, results: list[Result], right: list[bool], seconds: float, engine: Engine
) -> Line:
    n, n_right = len(results), sum(right)
    n_tokens = sum(len(r.new_tokens) for r in results)
    bits = "".join("01"[x] for x in right)  # first item first; lets two decoders be compared item by item

    def mean(values: list[int]) -> float:
        return sum(values) / n

    return {
        "bench": "decoders", "model": unit.model, "family": unit.family, "cache": unit.cache,
        "method": setting.name, "setting": setting.describe(), "fields": setting.settings(),
        "length": unit.length, "block": 32, "n": n, "accuracy": n_right / n, "interval": wilson(n_right, n),
        "right": f"{int(bits, 2):0{-(-n // 4)}x}",
        "nfe": mean([r.nfe for r in results]), "nfe_normal": mean([r.nfe_normal for r in results]),
        "nfe_lookahead": mean([r.nfe_lookahead for r in results]), "rows": mean([r.rows for r in results]),
        "new_tokens": n_tokens / n, "seconds": round(seconds, 3), "tps": n_tokens / seconds,
        "device": _device_name(engine), "dtype": str(engine.model.dtype).removeprefix("torch."),
        "torch": torch.__version__, "batch": engine.max_batch,
    }  # fmt: skip


def search_facts(results: list[Result]) -> dict[str, float]:
    """Return from traces: searches per request, mean candidates, shares committed and not top-1."""
    searches = [e.data for r in results for e in r.trace or [] if e.kind == "search"]
    chosen = [facts["chosen"] for facts in searches if facts["chosen"] is not None]
    n = max(1, len(searches))
    return {
        "searches": len(searches) / len(results),
        "mean_candidates": sum(len(facts["token"]) for facts in searches) / n,
        "committed": len(chosen) / n,
        "not_top_1": sum(rank > 0 for rank in chosen) / max(1, len(chosen)),
    }


def _device_name(engine: Engine) -> str:
    device = engine.model.device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()


def _tell(line: Line, done: int, n_all: int, seconds: float) -> None:
    left = seconds / done * (n_all - done)
    where = " ".join(line[name] for name in ("model", "family", "cache", "setting"))
    numbers = f"acc {100 * line['accuracy']:.1f}, NFE {line['nfe']:.1f}, {line['tps']:.0f} tok/s"
    print(f"[{done}/{n_all}, {left:.0f} s left] {where}: {numbers}", file=sys.stderr, flush=True)
