"""A schedule of forwards, replayed end to end on a model of any shape: tokens per second.

A schedule says which forwards a decoder needs for one response and how many candidates each tries; what the
model answers does not matter, so random weights do. `ripple bench replay` replays the paper's own counts;
`--schedules FILE` replays decodings that `ripple bench schedules` recorded, each under the cache that it was
recorded with, and `--trace trace.jsonl` a single one under every cache. All responses count 256 tokens.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ripple.analysis.plots import draw_beside
from ripple.analysis.speed import replay_tables
from ripple.bench.fill import fill
from ripple.bench.full_size import Networks, check_device, device_name, listed_dtypes, ordinary_tokens
from ripple.bench.scripts import Played, Schedule, Script, Scripted, spread
from ripple.caches import Cache, DualCache, ExactCache, NoCache, PrefixCache, SlideCache
from ripple.decoders import Lopa
from ripple.engine.blocks import suits
from ripple.engine.engine import Engine
from ripple.engine.result import Result
from ripple.errors import RippleError, unknown
from ripple.fields import param, split_specs
from ripple.files import Line, read_lines
from ripple.measurement import Measurement, listed
from ripple.models.base import ModelConfig
from ripple.models.load import torch_device
from ripple.models.shapes import shape_named
from ripple.options import Options
from ripple.paper.published import MAIN
from ripple.schedule import ScheduledForward, forwards_of, from_lists
from ripple.trace import read_trace

LENGTH, BLOCK = 256, 32
N_BLOCKS = LENGTH // BLOCK
PROMPT = 1000  # about what GSM8K's five worked examples take
N_SCHEDULES = 2  # published means are not whole numbers: so many schedules come close to them
CACHES: tuple[Cache, ...] = (NoCache(), PrefixCache(), DualCache(), DualCache(keep_prompt=True))
OF_A_TRACE: tuple[Cache, ...] = (*CACHES, SlideCache())
OF_BLOCKS: tuple[Cache, ...] = (NoCache(), ExactCache())
TASKS = tuple(MAIN["LLaDA"])
# The paper has no counts of models that attend block by block: LLaDA's stand in.
PAPER_MODEL = {"llada-8b": "LLaDA", "dream-7b": "Dream"} | dict.fromkeys(
    ("sdar-8b-b32", "nemotron-8b", "llada2-mini"), "LLaDA"
)
# GSM8K on LLaDA (tab:decomp): 12.3 normal + 23.4 lookahead forwards, 3.87 candidates. For the other rows the
# paper gives only the sum; they are split in the same proportion after the block openings.
LOOKAHEAD_SHARE, CANDIDATES = 23.4 / (12.3 + 23.4 - N_BLOCKS), 3.87
LOPA_BRANCHES = float(Lopa().k)
ROUNDS = 2  # of a recording before it is timed: run, captured


class Counts(NamedTuple):
    """What one decoder needs for a response, on average."""

    task: str
    method: str
    normal: float
    lookahead: float
    branches: float


class Recording(NamedTuple):
    """A recorded decoding."""

    model: str
    decoder: str
    cache: str
    block: int
    prompt: int  # tokens
    new_tokens: int
    forwards: tuple[ScheduledForward, ...]
    budget: float | None = None  # of lookaheads under load,
    at_once: int | None = None  # with so many requests at a time


class ReplayPoint(NamedTuple):
    """What one line is about."""

    shape: str
    task: str
    method: str
    cache: str
    prompt: int
    dtype: str


class Replayed(NamedTuple):
    """What is replayed for one line: a published mean, or recordings."""

    counts: Counts | None
    schedules: list[Schedule]
    recordings: list[Recording]


@dataclass(frozen=True)
class ReplaySpeed(Measurement):
    """Replay the paper's schedules of forwards at full model size, on a GPU: tokens per second."""

    name = "replay"

    out: Path | None = param(
        None, "result lines; none is results/replay-DEVICE.jsonl; a run goes on where it ends"
    )
    shapes: str = param(",".join(PAPER_MODEL), "released shapes, joined by commas")
    device: str = param("auto", "cpu, cuda, cuda:N or auto")
    layers: int = param(0, "fewer layers than the released model has; 0 is all", within="[0, inf)")
    prompt: int = param(PROMPT, "prompt length in tokens", within="[1, inf)")
    tasks: str = param(",".join(TASKS), "the paper's benchmarks, joined by commas")
    methods: str = param("", "decoders, joined by commas; none named: all")
    caches: str = param("", "caches, joined by commas; none named: all")
    dtypes: str = param("bf16", "of the layers' products, joined by commas: bf16, fp8")
    trace: Path | None = param(None, "a recorded decoding to replay instead")
    schedules: Path | None = param(None, "lines of `ripple bench schedules` to replay instead")
    items: int = param(0, "at most so many recordings of each decoder; 0 is all", within="[0, inf)")
    seconds: float = param(0.0, "start no new measurement after this long; 0 is no limit", within="[0, inf)")

    def run(self) -> dict[str, Any]:
        """Replay what `out` lacks; `default` without a cache comes first, since speed-ups are over it."""
        target = torch_device(self.device)
        check_device(self.name, target, self.layers)
        out = self.out or Path("results") / f"replay-{target.type}.jsonl"
        work = {
            ReplayPoint(shape, task, method, policy, self.prompt, dtype): how
            for shape in listed(self.shapes)
            for dtype in listed_dtypes(self.dtypes, shape_named(shape))
            for task, method, policy, how in self._work(shape)
            if (not self.methods or method in split_specs(self.methods))
            and (not self.caches or policy in split_specs(self.caches))
        }
        networks = Networks(target, self.layers)
        players: dict[tuple[str, ...], Player] = {}

        def measure(point: ReplayPoint) -> Line:
            place: tuple[str, ...] = (point.shape, point.dtype, point.cache)
            if work[point].recordings:
                place += (point.method,)  # recorded decodings have many shapes, and graphs are limited
            if place not in players:
                players.clear()  # one store of keys at a time
                model = networks.get(point.shape, point.dtype)
                players[place] = Player(Engine(model, max_batch=1), point.cache, self.prompt)
            return _line(point, work[point], players[place], self.schedules)

        n_new = fill(out, list(work), _point_of, measure, "replays", self.seconds)
        return {"bench": self.name, "new_lines": n_new, **draw(out)}

    def _work(self, shape: str) -> Iterator[tuple[str, str, str, Replayed]]:
        """Yield what is replayed on a shape: task, decoder, cache and how."""
        config = shape_named(shape, self.layers or None)
        if self.schedules is not None:
            for place, some in grouped(recordings(self.schedules), config).items():
                yield *place, Replayed(None, [], some[: self.items or None])
            return
        caches = OF_BLOCKS if config.attention_block else CACHES if self.trace is None else OF_A_TRACE
        for policy in caches:
            if self.trace is not None:
                one = of_trace(self.trace)
                yield self.trace.name, one.decoder, policy.describe(), Replayed(None, [], [one])
                continue
            for counts in published(shape, listed(self.tasks)):
                how = (counts.normal, counts.lookahead, counts.branches, N_BLOCKS)
                schedules = list(spread(*how, N_SCHEDULES if counts.lookahead else 1))
                yield counts.task, counts.method, policy.describe(), Replayed(counts, schedules, [])


def draw(out: Path) -> dict[str, str]:
    """Write the tables of a result file beside it, and name the files."""
    lines = read_lines(out)
    dtypes = " and ".join(sorted({line["dtype"] for line in lines}))
    text = (
        f"# Published schedules, replayed\n\nDrawn from `{out.name}`. Random weights of the released shapes, "
        f"{dtypes}, batch 1; × is over `default` without a cache in the same run.\n\n"
    )
    text += of_blocks(line["shape"] for line in lines if "published_nfe" in line)
    return draw_beside(out, text + replay_tables(lines))


def of_blocks(shapes: Iterable[str]) -> str:
    """Return what has to be said of the paper's schedules on shapes that attend block by block."""
    configs = [shape_named(shape) for shape in set(shapes)]
    text = ""
    if any(config.attention_block for config in configs):
        text = "Where a model attends block by block, the paper's counts of LLaDA are replayed."
    if any(config.causal_context for config in configs):
        text += (
            f" Nemotron's forwards that predict the first token of each of the {N_BLOCKS} blocks come on top "
            "of them."
        )
    return text and f"{text}\n\n"


def published(shape: str, tasks: list[str]) -> Iterator[Counts]:
    """Yield the paper's forward counts of every decoder on every asked-for benchmark."""
    if shape not in PAPER_MODEL:
        raise unknown("model shape", shape, PAPER_MODEL)
    table = MAIN[PAPER_MODEL[shape]]
    for task in tasks:
        if task not in table:
            raise unknown("benchmark", task, table)
        for method, row in table[task].items():
            rest = row.nfe - N_BLOCKS
            if method == "rps":
                looks = rest * LOOKAHEAD_SHARE
                yield Counts(task, method, row.nfe - looks, looks, CANDIDATES)
            elif method == "lopa":
                yield Counts(task, method, N_BLOCKS, rest, LOPA_BRANCHES)
            elif method == "wino":  # every forward carries the shadow block, one branch's worth of rows
                yield Counts(task, method, N_BLOCKS, rest, 1.0)
            else:
                yield Counts(task, method, row.nfe, 0.0, 0.0)


def recordings(path: Path) -> list[Recording]:
    """Read the lines of `ripple bench schedules`."""
    recorded = [
        Recording(
            line["model"], line["decoder"], line["cache"], line["block"], line["prompt_tokens"],
            line["new_tokens"], from_lists(line["forwards"]), line["budget"], line["at_once"],
        )
        for line in read_lines(path) if line.get("bench") == "schedules"
    ]  # fmt: skip
    if not recorded:
        raise RippleError(f"{path} holds no schedules; `ripple bench schedules` writes them.")
    return recorded


def grouped(all_of: list[Recording], config: ModelConfig) -> dict[tuple[str, str, str], list[Recording]]:
    """Return by model, decoder and cache what needed no company and fits this kind of model."""
    groups: dict[tuple[str, str, str], list[Recording]] = {}
    for one in all_of:
        if one.budget is None and fits(one, config):
            groups.setdefault((one.model, one.decoder, one.cache), []).append(one)
    return groups


def fits(one: Recording, config: ModelConfig) -> bool:
    """Whether a model of this kind can repeat a recording."""
    return suits(Options(cache=one.cache), config) and config.attention_block in (None, one.block)


def of_trace(path: Path) -> Recording:
    """Return a recorded decoding."""
    events = read_trace(path)
    start, forwards = events[0].data, forwards_of(events, str(path))
    if start["length"] != LENGTH:
        raise RippleError(f"{path} has a response of {start['length']} positions; a replay wants {LENGTH}.")
    n_prompt = len(start["prompt"])
    return Recording("", start["decoder"], start["cache"], start["block"], n_prompt, LENGTH, forwards)


class Player:
    """Replays schedules under one cache; every shape is captured before anything is timed."""

    def __init__(self, engine: Engine, policy: str, prompt: int) -> None:
        generator = torch.Generator().manual_seed(0)
        config = engine.model.config
        self.engine = engine
        self.ids = torch.randint(ordinary_tokens(config), (prompt,), generator=generator).tolist()
        self.options = Options(length=LENGTH, block=config.attention_block or BLOCK, cache=policy)
        self.seen: set[int] = set()  # numbers of branches
        self.known: dict[Schedule, tuple[float, Result]] = {}  # `default` is the same on every benchmark

    def scripted(self, schedule: Schedule) -> tuple[float, Result]:
        """Return the seconds of one schedule, and what it came to."""
        if schedule not in self.known:
            new = {n for block in schedule for n in block} - self.seen
            if new:
                self._play(self._scripted(_warm_up(new, self.options.policy)), BLOCK)
                self.seen |= new
            self.known[schedule] = self._play(self._scripted(schedule), BLOCK)
        return self.known[schedule]

    def recorded(self, some: list[Recording]) -> list[tuple[float, Result]]:
        """Return the seconds of each recording, and what it came to."""
        config = self.engine.model.config
        for _ in range(ROUNDS):
            played = [self._play(played_on(config, one), one.block, one.prompt) for one in some]
        played = [self._play(played_on(config, one), one.block, one.prompt) for one in some]
        for one, (_, result) in zip(some, played, strict=True):
            if result.nfe < len(one.forwards):
                raise RippleError(f"A recording of {one.decoder} ended after {result.nfe} forwards.")
        return played

    def _scripted(self, schedule: Schedule) -> Scripted:
        return Scripted(schedule, tokens=ordinary_tokens(self.engine.model.config))

    def _play(self, script: Script, block: int, phase: int = 0) -> tuple[float, Result]:
        """Run a script; where blocks count from position 0, the prompt is cut to end as far into one."""
        ids = self.ids[: len(self.ids) - cut(self.engine.model.config, len(self.ids), phase)]
        options = replace(self.options, block=block)
        start = time.perf_counter()
        result = self.engine.generate(ids, options, decoder=script)
        return time.perf_counter() - start, result


def played_on(config: ModelConfig, one: Recording) -> Played:
    """Return the script that repeats a recording on a model of this kind."""
    return Played(one.forwards, config.end_ids[0], tokens=ordinary_tokens(config))


def cut(config: ModelConfig, prompt: int, phase: int) -> int:
    """Return how many tokens a prompt is too long to end as far into a block as one of `phase` tokens."""
    if config.attention_block is None or config.causal_context:
        return 0
    return (prompt - phase) % config.attention_block


def _warm_up(branches: set[int], policy: Cache) -> Schedule:
    """Return a schedule with every number of branches three times: run, captured, replayed."""
    once = (0, *sorted(branches) * 3)
    # The rows that are recomputed shrink from block to block only under the prefix cache.
    return tuple(once if number < 2 or policy.name == "prefix" else (0,) for number in range(N_BLOCKS))


def _point_of(line: Line) -> ReplayPoint:
    return ReplayPoint(*(line[name] for name in ReplayPoint._fields))


def _line(point: ReplayPoint, work: Replayed, player: Player, source: Path | None) -> Line:
    played = [player.scripted(one) for one in work.schedules] or player.recorded(work.recordings)
    seconds = statistics.fmean(seconds for seconds, _ in played)
    results = [result for _, result in played]
    looks = statistics.fmean(result.nfe_lookahead for result in results)
    canvases = statistics.fmean(result.canvases for result in results)
    nfe = statistics.fmean(result.nfe for result in results)
    line = {
        "bench": "replay", **point._asdict(), "nfe": round(nfe, 3), "nfe_lookahead": round(looks, 3),
        "candidates": round((canvases - nfe) / looks, 3) if looks else 0.0,
        "seconds": round(seconds, 5), "tps": round(LENGTH / seconds, 2),
        "device": device_name(player.engine.model.device), "torch": torch.__version__,
    }  # fmt: skip
    if work.counts is not None:
        return line | {"published_nfe": round(work.counts.normal + work.counts.lookahead, 3)}
    new_tokens = statistics.fmean(one.new_tokens for one in work.recordings)
    return line | {
        "answers": len(results), "canvases": round(canvases, 3), "new_tokens": round(new_tokens, 3),
        "schedules": "" if source is None else source.name,
    }  # fmt: skip
