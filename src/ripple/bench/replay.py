"""A published schedule of forwards, replayed end to end on a model of any shape: tokens per second.

A schedule says how many normal and lookahead forwards a decoder needs for one response and how many
candidates it tries; what the model answers does not matter, so random weights do. On a GPU,
`ripple bench replay` replays the paper's own counts; `--trace trace.jsonl` replays a recorded decoding.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ripple.analysis.lines import Line, append_line, mend, read_lines
from ripple.analysis.published import MAIN
from ripple.analysis.speed import replay_tables
from ripple.bench.scripts import Schedule, Scripted, spread
from ripple.caches import Cache, DualCache, NoCache, PrefixCache
from ripple.decoders import Lopa
from ripple.engine.engine import Engine
from ripple.errors import RippleError, unknown
from ripple.models.load import torch_device
from ripple.models.shapes import SHAPES, random_network, shape_named
from ripple.trace import read_trace

LENGTH, BLOCK = 256, 32
N_BLOCKS = LENGTH // BLOCK
PROMPT = 1000  # about what GSM8K's five worked examples take
N_SCHEDULES = 2  # published means are not whole numbers: so many schedules come close to them
CACHES: tuple[Cache, ...] = (NoCache(), PrefixCache(), DualCache(), DualCache(keep_prompt=True))
TASKS = tuple(MAIN["LLaDA"])
PAPER_MODEL = {"llada-8b": "LLaDA", "dream-7b": "Dream"}
# GSM8K on LLaDA (tab:decomp): 12.3 normal + 23.4 lookahead forwards, 3.87 candidates. For the other rows the
# paper gives only the sum; they are split in the same proportion after the block openings.
LOOKAHEAD_SHARE, CANDIDATES = 23.4 / (12.3 + 23.4 - N_BLOCKS), 3.87
LOPA_BRANCHES = float(Lopa().k)


class Plan(NamedTuple):
    """What is replayed."""

    task: str
    method: str
    normal: float
    lookahead: float
    branches: float


def measure(
    out: Path | None = None, shapes: str = ",".join(SHAPES), device: str = "auto", layers: int = 0,
    prompt: int = PROMPT, tasks: str = ",".join(TASKS), trace: Path | None = None, seconds: float = 0,
) -> dict[str, Any]:  # fmt: skip
    """Replay what `out` lacks; `default` without a cache comes first, since speed-ups are over it."""
    for task in tasks.split(","):
        if task not in TASKS:
            raise unknown("benchmark", task, TASKS)
    target = torch_device(device)
    out = out or Path("results") / f"replay-{target.type}.jsonl"
    mend(out)
    done = {(x["shape"], x["task"], x["method"], x["cache"], x["prompt"]) for x in read_lines(out)}
    start, n_new = time.perf_counter(), 0
    for shape in shapes.split(","):
        config = shape_named(shape, layers or None)
        model = random_network(config, target, torch.bfloat16)
        for policy in CACHES:
            player = _Player(Engine(model, max_batch=1), policy, prompt)
            for plan, schedules in _work(shape, tasks, trace):
                key = (shape, plan.task, plan.method, policy.describe(), prompt)
                if key in done or (seconds and time.perf_counter() - start > seconds):
                    continue
                line = _line(key, plan, schedules, [player.seconds(one) for one in schedules], target)
                append_line(out, line)
                n_new += 1
                print(f"{key}: {line['seconds']:.3f} s, {line['tps']:.0f} tok/s", file=sys.stderr, flush=True)
        del model
    draw(out)
    return {"bench": "replay", "out": str(out), "new_lines": n_new}


def draw(out: Path) -> None:
    """Write the tables of a result file beside it."""
    text = (
        f"# Published schedules, replayed\n\nDrawn from `{out.name}`. Random weights of the released shapes, "
        "bf16, batch 1; × is over `default` without a cache in the same run.\n\n"
    )
    out.with_suffix(".md").write_text(text + replay_tables(read_lines(out)), encoding="utf-8")


def _work(shape: str, tasks: str, trace: Path | None) -> Iterator[tuple[Plan, list[Schedule]]]:
    if trace is not None:
        schedule = recorded(trace)
        flat = [n for block in schedule for n in block]
        looks = [n for n in flat if n]
        mean = sum(looks) / max(1, len(looks))
        yield Plan(trace.name, "trace", len(flat) - len(looks), len(looks), mean), [schedule]
        return
    for plan in published(shape, tasks.split(",")):
        how = (plan.normal, plan.lookahead, plan.branches, N_BLOCKS)
        yield plan, list(spread(*how, N_SCHEDULES if plan.lookahead else 1))


def published(shape: str, tasks: list[str]) -> Iterator[Plan]:
    """Yield the paper's forward counts of every decoder on every asked-for benchmark."""
    table = MAIN[PAPER_MODEL[shape]]
    for task in tasks:
        for method, row in table[task].items():
            rest = row.nfe - N_BLOCKS
            if method == "rps":
                looks = rest * LOOKAHEAD_SHARE
                yield Plan(task, method, row.nfe - looks, looks, CANDIDATES)
            elif method == "lopa":
                yield Plan(task, method, N_BLOCKS, rest, LOPA_BRANCHES)
            elif method == "wino":  # every forward carries the shadow block, one branch's worth of rows
                yield Plan(task, method, N_BLOCKS, rest, 1.0)
            else:
                yield Plan(task, method, row.nfe, 0.0, 0.0)


def recorded(path: Path) -> Schedule:
    """Return the schedule of a recorded decoding: for each block, the branches of its forwards."""
    blocks: dict[tuple[int, ...], list[int]] = {}
    for event in read_trace(path):
        if event.kind == "forward":
            blocks.setdefault(tuple(event.data["window"]), []).append(event.data["rows"] - 1)
    if len(blocks) != N_BLOCKS:
        raise RippleError(f"{path} has {len(blocks)} blocks; a replay wants {N_BLOCKS} of {BLOCK}.")
    return tuple(tuple(forwards) for _, forwards in sorted(blocks.items()))


class _Player:
    """Replays schedules under one cache; every shape is captured before anything is timed."""

    def __init__(self, engine: Engine, policy: Cache, prompt: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.engine = engine
        self.ids = torch.randint(engine.model.config.mask_id, (prompt,), generator=generator).tolist()
        self.how: dict[str, Any] = {"length": LENGTH, "block": BLOCK, "cache": policy}
        self.met: set[int] = set()  # numbers of branches
        self.known: dict[Schedule, float] = {}  # `default` has the same schedule on every benchmark

    def seconds(self, schedule: Schedule) -> float:
        """Return the seconds of one schedule."""
        if schedule not in self.known:
            new = {n for block in schedule for n in block} - self.met
            if new:
                self._play(_warm_up(new, self.how["cache"]))
                self.met |= new
            self.known[schedule] = self._play(schedule)
        return self.known[schedule]

    def _play(self, schedule: Schedule) -> float:
        start = time.perf_counter()
        self.engine.generate(self.ids, decoder=Scripted(schedule), **self.how)
        return time.perf_counter() - start


def _warm_up(branches: set[int], policy: Cache) -> Schedule:
    """Return a schedule that meets every number of branches three times: run, captured, replayed."""
    once = (0, *sorted(branches) * 3)
    # The rows that are recomputed shrink from block to block only under the prefix cache.
    return tuple(once if number < 2 or policy.name == "prefix" else (0,) for number in range(N_BLOCKS))


def _line(
    key: tuple[Any, ...], plan: Plan, schedules: list[Schedule], times: list[float], device: torch.device
) -> Line:
    shape, task, method, policy, prompt = key
    flat = [n for schedule in schedules for block in schedule for n in block]
    looks = [n for n in flat if n]
    seconds = statistics.fmean(times)
    return {
        "bench": "replay", "shape": shape, "task": task, "method": method, "cache": policy, "prompt": prompt,
        "nfe": round(len(flat) / len(schedules), 3), "nfe_lookahead": round(len(looks) / len(schedules), 3),
        "candidates": round(sum(looks) / max(1, len(looks)), 3),
        "published_nfe": round(plan.normal + plan.lookahead, 3),
        "seconds": round(seconds, 5), "tps": round(LENGTH / seconds, 2),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "torch": torch.__version__,
    }  # fmt: skip
