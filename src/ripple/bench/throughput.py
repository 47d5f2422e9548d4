"""Continuous batching at full model size: tokens per second with 1, 8, 32 and 64 requests at a time.

Run on a GPU: `ripple bench throughput`. Requests follow the paper's GSM8K schedule of a decoder, each with
a prompt length of its own; as one ends the next joins. Weights are random.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch

from ripple.analysis.lines import append_line, mend, read_lines
from ripple.analysis.speed import throughput_tables
from ripple.bench.replay import LENGTH, N_BLOCKS, published
from ripple.bench.scripts import Schedule, Scripted, spread
from ripple.caches import cache
from ripple.engine.engine import Engine
from ripple.engine.result import Settings
from ripple.engine.session import Session
from ripple.models.load import torch_device
from ripple.models.shapes import random_network, shape_named

CONCURRENT = (1, 8, 32, 64)
PROMPTS = (900, 1000, 1100)  # tokens, in turn
WARM_TICKS = 14  # about two of eight blocks
METHODS = ("rps", "confidence")
CACHES = ("dual", "dual:keep_prompt=true", "none")


def measure(
    out: Path | None = None, shapes: str = "llada-8b", device: str = "auto", layers: int = 0,
    batches: str = ",".join(map(str, CONCURRENT)), seconds: float = 0,
) -> dict[str, Any]:  # fmt: skip
    """Measure what `out` lacks, for at most `seconds` if given."""
    target = torch_device(device)
    out = out or Path("results") / f"throughput-{target.type}.jsonl"
    mend(out)
    done = {(x["shape"], x["method"], x["cache"], x["concurrent"]) for x in read_lines(out)}
    start, n_new = time.perf_counter(), 0
    for shape in shapes.split(","):
        model = random_network(shape_named(shape, layers or None), target, torch.bfloat16)
        for n in map(int, batches.split(",")):
            for policy in CACHES:
                for method in METHODS:
                    key = (shape, method, policy, n)
                    late = seconds and time.perf_counter() - start > seconds
                    if key in done or late or (policy == "none" and n > 8):
                        continue  # uncached forwards are bound by arithmetic from the first request on
                    line = _run(Engine(model, max_batch=n), key)
                    append_line(out, line)
                    n_new += 1
                    print(f"{key}: {line['tps']:.0f} tok/s", file=sys.stderr, flush=True)
        del model
    draw(out)
    return {"bench": "throughput", "out": str(out), "new_lines": n_new}


def draw(out: Path) -> None:
    """Write the tables of a result file beside it."""
    text = (
        f"# Several requests at a time\n\nDrawn from `{out.name}`. The paper's GSM8K schedules, prompts of "
        f"{min(PROMPTS)} to {max(PROMPTS)} tokens, random weights of the released shapes in bf16.\n\n"
    )
    out.with_suffix(".md").write_text(text + throughput_tables(read_lines(out)), encoding="utf-8")


def _run(engine: Engine, key: tuple[str, str, str, int]) -> dict[str, Any]:
    """Decode n requests at a time; a first round, broken off, meets and captures the shapes."""
    shape, method, policy, n = key
    plan = next(plan for plan in published(shape, ["gsm8k"]) if plan.method == method)
    n_requests = max(2, n)
    schedules = list(spread(plan.normal, plan.lookahead, plan.branches, N_BLOCKS, n_requests))
    _drain(engine, schedules, policy, WARM_TICKS)
    start = time.perf_counter()
    sessions, n_ticks = _drain(engine, schedules, policy)
    seconds = time.perf_counter() - start
    return {
        "bench": "throughput", "shape": shape, "method": method, "cache": policy, "concurrent": n,
        "requests": n_requests, "ticks": n_ticks, "seconds": round(seconds, 4),
        "tps": round(n_requests * LENGTH / seconds, 1),
        "latency_s": round(sum(session.seconds for session in sessions) / n_requests, 4),
        "torch": torch.__version__,
    }  # fmt: skip


def _drain(
    engine: Engine, schedules: list[Schedule], policy: str, most_ticks: int = 1 << 20
) -> tuple[list[Session], int]:
    """Submit one request per schedule and tick until all are done, or so many times."""
    generator = torch.Generator().manual_seed(0)
    sessions = []
    for number, schedule in enumerate(schedules):
        n_prompt = PROMPTS[number % len(PROMPTS)]
        ids = torch.randint(engine.model.config.mask_id, (n_prompt,), generator=generator).tolist()
        sessions.append(engine.submit(ids, Settings(Scripted(schedule), LENGTH, cache=cache(policy))))
    n_ticks = 0
    while n_ticks < most_ticks and any(session.finish is None for session in sessions):
        engine.tick()
        n_ticks += 1
    for session in sessions:
        session.cancel()  # nothing, if it is done
    return sessions, n_ticks
