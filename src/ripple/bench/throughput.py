"""Continuous batching at full model size: tokens per second with 1, 8, 32 and 64 requests at a time.

Requests follow the paper's GSM8K schedule of a decoder, or with `--schedules FILE` decodings that `ripple
bench schedules` recorded, each with a prompt length of its own; as one ends the next joins. Weights are
random. Decodings with a lookahead budget were recorded with just so many requests at a time, since the budget
decides by the load.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ripple.analysis.plots import draw_beside
from ripple.analysis.speed import throughput_tables
from ripple.bench import replay
from ripple.bench.fill import fill
from ripple.bench.full_size import Networks, check_device, listed_dtypes, ordinary_tokens
from ripple.bench.replay import BLOCK, LENGTH, N_BLOCKS, Recording
from ripple.bench.scripts import Script, Scripted, spread
from ripple.engine.blocks import suits
from ripple.engine.engine import Engine
from ripple.engine.graphs import MANY_ROWS
from ripple.engine.request import Request
from ripple.fields import param, split_specs
from ripple.files import Line, read_lines
from ripple.measurement import Measurement, listed, whole_numbers
from ripple.models.base import ModelConfig
from ripple.models.load import torch_device
from ripple.models.shapes import shape_named
from ripple.options import Options

CONCURRENT = (1, 8, 32, 64)
PROMPTS = (900, 1000, 1100)  # tokens, in turn
WARM_TICKS = 14  # about two of eight blocks
METHODS = ("rps", "confidence")
CACHES = ("dual", "dual:keep_prompt=true", "none", "exact")
MOST_UNCACHED = 8  # requests: uncached forwards are bound by arithmetic from the first one on
PUBLISHED = "gsm8k"


class ThroughputPoint(NamedTuple):
    """What one line is about."""

    shape: str
    method: str
    cache: str
    concurrent: int
    dtype: str
    task: str = PUBLISHED  # or the model whose decodings are replayed


@dataclass(frozen=True)
class Throughput(Measurement):
    """Decode many requests at a time at full model size, on a GPU: tokens per second of all together."""

    name = "throughput"

    out: Path | None = param(
        None, "result lines; none is results/throughput-DEVICE.jsonl; a run goes on where it ends"
    )
    shapes: str = param("llada-8b", "released shapes, joined by commas")
    device: str = param("auto", "cpu, cuda, cuda:N or auto")
    layers: int = param(0, "fewer layers than the released model has; 0 is all", within="[0, inf)")
    batches: str = param(",".join(map(str, CONCURRENT)), "requests at a time, joined by commas")
    methods: str = param("", "decoders, joined by commas; none named: all")
    caches: str = param("", "caches, joined by commas; none named: all")
    dtypes: str = param("bf16", "of the layers' products, joined by commas: bf16, fp8")
    schedules: Path | None = param(None, "lines of `ripple bench schedules` to replay instead")
    rounds: int = param(1, "so many requests in all for each at a time", within="[1, inf)")
    seconds: float = param(0.0, "start no new measurement after this long; 0 is no limit", within="[0, inf)")

    def run(self) -> dict[str, Any]:
        """Measure what `out` lacks."""
        target = torch_device(self.device)
        check_device(self.name, target, self.layers)
        out = self.out or Path("results") / f"throughput-{target.type}.jsonl"
        recorded = None if self.schedules is None else replay.recordings(self.schedules)
        points = [
            ThroughputPoint(shape, method, policy, n, dtype, task)
            for shape in listed(self.shapes)
            for dtype in listed_dtypes(self.dtypes, shape_named(shape))
            for n in whole_numbers("batches", self.batches, 1)
            for task, method, policy in self._kinds(shape_named(shape, self.layers or None), recorded, n)
            if policy != "none" or n <= MOST_UNCACHED
        ]
        networks = Networks(target, self.layers)

        def measure(point: ThroughputPoint) -> Line:
            model = networks.get(point.shape, point.dtype)
            n = max(2, self.rounds * point.concurrent)
            scripts = _scripts(model.config, point, n, recorded)
            return _line(Engine(model, max_batch=point.concurrent), point, scripts)

        n_new = fill(out, points, _point_of, measure, "throughputs", self.seconds)
        return {"bench": self.name, "new_lines": n_new, **draw(out)}

    def _kinds(
        self, config: ModelConfig, recorded: list[Recording] | None, n: int
    ) -> Iterator[tuple[str, str, str]]:
        """Yield task, decoder and cache of what is replayed with n requests at a time."""
        kinds = [(PUBLISHED, method, policy) for policy in CACHES for method in METHODS]
        if recorded is not None:
            kinds = list(dict.fromkeys(_kind(one) for one in recorded if _suits(one, config, n)))
        for task, method, policy in kinds:
            asked = (not self.methods or method.split(", ")[0] in split_specs(self.methods)) and (
                not self.caches or policy in split_specs(self.caches)
            )
            if asked and suits(Options(cache=policy), config):
                yield task, method, policy


def draw(out: Path) -> dict[str, str]:
    """Write the tables of a result file beside it, and name the files."""
    lines = read_lines(out)
    dtypes = " and ".join(sorted({line["dtype"] for line in lines}))
    text = (
        f"# Several requests at a time\n\nDrawn from `{out.name}`. The paper's GSM8K schedules, prompts of "
        f"{min(PROMPTS)} to {max(PROMPTS)} tokens, random weights of the released shapes in {dtypes}.\n\n"
    )
    text += replay.of_blocks(line["shape"] for line in lines if line.get("task", PUBLISHED) == PUBLISHED)
    return draw_beside(out, text + throughput_tables(lines))


def _point_of(line: Line) -> ThroughputPoint:
    return ThroughputPoint(**{name: line[name] for name in ThroughputPoint._fields if name in line})


def _kind(one: Recording) -> tuple[str, str, str]:
    limited = "" if one.budget is None else f", budget {one.budget:g}"
    return one.model, one.decoder + limited, one.cache


def _suits(one: Recording, config: ModelConfig, n: int) -> bool:
    return replay.fits(one, config) and one.at_once in (None, n)


def _scripts(
    config: ModelConfig, point: ThroughputPoint, n: int, recorded: list[Recording] | None
) -> list[tuple[Script, int, int]]:
    """Return what each of n requests follows, its block and how far into a block its prompt ends."""
    tokens = ordinary_tokens(config)
    if recorded is not None:
        place = (point.task, point.method, point.cache)
        some = [one for one in recorded if _kind(one) == place and _suits(one, config, point.concurrent)]
        return [(replay.played_on(config, one), one.block, one.prompt) for one in islice(cycle(some), n)]
    counts = next(c for c in replay.published(point.shape, [PUBLISHED]) if c.method == point.method)
    schedules = spread(counts.normal, counts.lookahead, counts.branches, N_BLOCKS, n)
    return [(Scripted(one, tokens=tokens), config.attention_block or BLOCK, 0) for one in schedules]


def _line(engine: Engine, point: ThroughputPoint, scripts: list[tuple[Script, int, int]]) -> Line:
    """Decode n requests at a time; rounds before, the last of them broken off, run and capture the shapes."""
    if point.task != PUBLISHED and point.concurrent * BLOCK < MANY_ROWS:
        _decode(engine, scripts, point.cache)  # recorded ones have many shapes
        _decode(engine, scripts, point.cache)
    _decode(engine, scripts, point.cache, WARM_TICKS)
    start = time.perf_counter()
    requests, n_ticks = _decode(engine, scripts, point.cache)
    seconds = time.perf_counter() - start
    return {
        "bench": "throughput", **point._asdict(),
        "requests": len(scripts), "ticks": n_ticks, "seconds": round(seconds, 4),
        "tps": round(len(scripts) * LENGTH / seconds, 1),
        "latency_s": round(sum(request.seconds for request in requests) / len(scripts), 4),
        "torch": torch.__version__,
    }  # fmt: skip


def _decode(
    engine: Engine, scripts: list[tuple[Script, int, int]], policy: str, most_ticks: int = 1 << 20
) -> tuple[list[Request], int]:
    """Decode one request per script, or so many ticks of them; return them and the number of ticks."""
    generator = torch.Generator().manual_seed(0)
    config, requests = engine.model.config, []
    for number, (script, block, phase) in enumerate(scripts):
        n_prompt = PROMPTS[number % len(PROMPTS)]
        n_prompt -= replay.cut(config, n_prompt, phase)
        ids = torch.randint(ordinary_tokens(config), (n_prompt,), generator=generator).tolist()
        requests.append(engine.submit(ids, decoder=script, length=LENGTH, block=block, cache=policy))
    n_ticks = 0
    with closing(engine.steps(requests)) as steps:  # cancels what is left
        for _ in steps:
            n_ticks += 1
            if n_ticks == most_ticks:
                break
    return requests, n_ticks
