"""1 to 1,000 GPUs on paper: requests per second, cost, latency and limits, from measured steps.

Every request follows the paper's forwards per block of a decoder (GSM8K, LLaDA), whatever its length; a tick
costs what `ripple bench step` has measured. Lines that were measured otherwise stand beside what this model
says of them (`check`). What needs no queue is computed (`gpu`); a fleet under Poisson arrivals is simulated
(`fleet`); tensor parallelism is arithmetic alone (`parallel`).
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ripple.analysis.plots import draw_beside
from ripple.analysis.scale import scale_figure, scale_tables
from ripple.bench.fleet import RowCounts, simulate
from ripple.bench.replay import published
from ripple.bench.step_costs import BLOCK, WHOLE, StepCosts
from ripple.errors import RippleError
from ripple.fields import param
from ripple.files import Line, read_lines, write_lines
from ripple.measurement import Measurement, whole_numbers
from ripple.models.base import ModelConfig
from ripple.models.shapes import shape_named

BLOCKS = 8  # of the published schedules
PROMPTS, ANSWERS = (256, 1000, 3000), (128, 256, 1024)
GPUS = (1, 8, 64, 1000)
LOADS = (0.5, 0.8, 0.95)  # of what all GPUs together can do
EACH = 200  # requests that a replica serves in a simulation
COUNTED = (0.3, 0.85)  # of the requests: neither those of the start nor those of the end
METHODS, CACHES = ("confidence", "rps"), ("dual", "dual:keep_prompt=true")
# Tensor parallelism, by arithmetic: a dense model of 72 billion parameters, and what joins the devices.
LARGE = {"n_layers": 80, "d_model": 8192, "parameters": 72.7e9, "kv_width": 1024}
LINK_GB_S = 450.0  # of NVLink 4, each way, as its maker says
HOP_US = 10.0  # of an all-reduce of few bytes: assumed
BF16 = 2


@dataclass(frozen=True)
class Workload:
    """What one kind of request asks for."""

    method: str
    cache: str
    prompt: int
    answer: int
    normal: float  # forwards per block, the opening one included
    lookahead: float
    branches: float

    @property
    def positions(self) -> int:
        """Of its canvas."""
        return self.prompt + self.answer

    @property
    def n_blocks(self) -> int:
        """Of its response."""
        return math.ceil(self.answer / BLOCK)

    @property
    def forwards(self) -> float:
        """That it waits for."""
        return self.n_blocks * (self.normal + self.lookahead)

    def script(self, rng: random.Random) -> RowCounts:
        """Return one request's asks; fractions of forwards come now and then."""
        asks: list[int] = []
        for block in range(self.n_blocks):
            is_partial = block > 0 and "keep_prompt" in self.cache
            asks.append(-self.answer if is_partial else WHOLE)
            asks += [BLOCK] * (_rounded(self.normal, rng) - 1)
            asks += [round(BLOCK * (1 + self.branches))] * _rounded(self.lookahead, rng)
        return asks

    def tick_s(self, costs: StepCosts, n: int) -> float:
        """Return the mean seconds of a tick of n such requests, out of step with each other."""
        opens = self.n_blocks / self.forwards  # the chance that a request opens a block
        whole = 1 / self.forwards if "keep_prompt" in self.cache else opens
        steps = self.normal - 1 + self.lookahead
        rows = BLOCK * (1 + self.branches * self.lookahead / steps)  # of a request within a block
        at = self.positions
        return (
            _expected(n, whole, lambda k: costs.whole_s(k, at))
            + _expected(n, opens - whole, lambda k: costs.cached_s(k * self.answer, at))
            + _expected(n, 1 - opens, lambda k: costs.cached_s(k * rows, at))
        )

    def rate(self, costs: StepCosts, n: int) -> float:
        """Return the requests per second of a GPU that always decodes n of them."""
        return n / (self.forwards * self.tick_s(costs, n))


def _expected(n: int, chance: float, cost: Callable[[int], float]) -> float:
    """Return the mean cost of those among n requests that take part in a forward."""
    chances = (math.comb(n, k) * chance**k * (1 - chance) ** (n - k) for k in range(n + 1))
    return sum(one * cost(k) for k, one in enumerate(chances))


def _rounded(mean: float, rng: random.Random) -> int:
    return int(mean) + (rng.random() < mean - int(mean))


@dataclass(frozen=True)
class Scale(Measurement):
    """Compute and simulate 1 to 1,000 GPUs from measured steps: speed, cost, latency, limits."""

    name = "scale"

    out: Path = param(Path("results/scale.jsonl"), "result lines; written anew")
    steps: Path = param(Path("results/step-h200.jsonl"), "lines of `ripple bench step`")
    throughputs: Path = param(
        Path("results/throughput-h200.jsonl"), "lines of `ripple bench throughput`, to compare with"
    )
    host: Path = param(Path("results/host-cpu.jsonl"), "lines of tools/measure_host.py")
    shape: str = param("llada-8b", "a released shape")
    price: float = param(4.0, "US dollars per GPU hour: a round number, not an offer", within="(0, inf)")
    network: float = param(25.0, "gigabits per second of a node with eight GPUs", within="(0, inf)")
    memory: float = param(141.0, "gigabytes of a GPU", within="(0, inf)")
    max_batch: int = param(32, "requests that a GPU decodes at a time", within="[1, inf)")
    gpus: str = param(",".join(map(str, GPUS)), "GPUs of the simulated fleets, joined by commas")
    seed: int = param(0, "seed of arrivals", within="[0, inf)")

    def run(self) -> dict[str, Any]:
        """Compute, simulate and write all lines."""
        config, costs = shape_named(self.shape), StepCosts.read(self.steps, self.shape)
        host = self._host()
        lines = [
            *self._checks(costs), *self._gpu(costs, config), *self._fleets(costs, host),
            *map(parallel_line, (1, 2, 4, 8)),
        ]  # fmt: skip
        facts = {"bench": self.name, "shape": self.shape, "device": costs.device, "price": self.price}
        write_lines(self.out, (facts | line for line in lines), "the results")
        return {"bench": self.name, "new_lines": len(lines), **draw(self.out)}

    def _work(self, method: str, cache: str, prompt: int, answer: int) -> Workload:
        """Return a request of a decoder by its published forwards per block."""
        counts = next(c for c in published(self.shape, ["gsm8k"]) if c.method == method)
        return Workload(
            method, cache, prompt, answer, counts.normal / BLOCKS, counts.lookahead / BLOCKS, counts.branches
        )

    def _checks(self, costs: StepCosts) -> Iterator[Line]:
        """Yield what was measured with many requests, beside what the model says."""
        for line in read_lines(self.throughputs):
            if line["shape"] == self.shape and line["cache"] in CACHES:
                work = self._work(line["method"], line["cache"], 1000, 256)
                n = max(1, line["concurrent"])
                tps = work.answer * work.rate(costs, n)
                yield {
                    "what": "check", "method": work.method, "cache": work.cache, "batch": n,
                    "measured_tps": line["tps"], "tps": round(tps, 1),
                    "error": round(tps / line["tps"] - 1, 4),
                }  # fmt: skip

    def _gpu(self, costs: StepCosts, config: ModelConfig) -> Iterator[Line]:
        """Yield what one GPU does, by decoder, cache, lengths and requests at a time."""
        room = self.memory - weights_gb(config)
        for method in METHODS:
            for cache in CACHES:
                for prompt in PROMPTS:
                    for answer in ANSWERS:
                        work = self._work(method, cache, prompt, answer)
                        fit = int(room / costs.request_gb(work.positions))
                        for n in sorted({1, min(self.max_batch, fit)}):
                            rate = work.rate(costs, n)
                            yield {
                                "what": "gpu", "method": method, "cache": cache, "prompt": prompt,
                                "answer": answer, "batch": n, "rps": round(rate, 3),
                                "tps": round(rate * answer, 1), "seconds": round(n / rate, 3),
                                "usd_per_million": round(self.price / 3600 / (rate * answer) * 1e6, 3),
                                "keys_gb": round(costs.request_gb(work.positions), 3), "fit": fit,
                            }  # fmt: skip

    def _fleets(self, costs: StepCosts, host: Mapping[str, float]) -> Iterator[Line]:
        """Yield simulated fleets, and what hosts and network would carry."""
        work = self._work("confidence", "dual:keep_prompt=true", 1000, 256)
        price = lru_cache(1 << 16)(lambda asks: costs.tick_s(asks, work.positions))
        full = work.rate(costs, self.max_batch)
        rng = random.Random(self.seed)
        for gpus in whole_numbers("gpus", self.gpus, 1):
            scripts = [work.script(rng) for _ in range(max(400, EACH * gpus))]
            for load in LOADS:
                rate = load * full * gpus
                served, busy = simulate(
                    scripts, lambda asks: price(tuple(sorted(asks))), gpus, rate, self.max_batch, self.seed
                )
                first, stop = (int(share * len(served)) for share in COUNTED)
                counted = sorted(served, key=lambda one: one.arrived)[first:stop]
                times = sorted(one.ended - one.arrived for one in counted)
                waits = sorted(one.begun - one.arrived for one in counted)
                yield {
                    "what": "fleet", "method": work.method, "cache": work.cache, "prompt": work.prompt,
                    "answer": work.answer, "batch": self.max_batch, "gpus": gpus, "load": load,
                    "requests": len(counted), "rps": round(rate, 2), "busy": round(busy, 3),
                    **{f"p{at}_s": _percentile(times, at) for at in (50, 99)},
                    "wait_p99_s": _percentile(waits, 99),
                    "usd_per_million": round(self.price / 3600 * gpus / (rate * work.answer) * 1e6, 3),
                    **self._limits(rate, gpus, work, host),
                }  # fmt: skip

    def _limits(self, rate: float, gpus: int, work: Workload, host: Mapping[str, float]) -> Line:
        """Return what a rate asks of hosts and network; a node has eight GPUs."""
        if not host:
            return {}
        per_node = rate * min(8, gpus) / gpus
        bits = {name: 8 * host[f"{name}_bytes"] * work.answer * per_node for name in ("text", "canvas")}
        return {
            "server_cores_per_gpu": round(rate / gpus * host["server_ms"] / 1e3, 4),
            "proxy_cores": round(rate * host["proxy_ms"] / 1e3, 3),
            "rps_of_one_proxy": round(1e3 / host["proxy_ms"], 1),
            "text_share": round(bits["text"] / self.network / 1e9, 6),
            "canvas_share": round(bits["canvas"] / self.network / 1e9, 6),
        }  # fmt: skip

    def _host(self) -> dict[str, float]:
        """Return what was measured of servers and proxies, if anything was."""
        lines = read_lines(self.host)
        if not lines:
            return {}
        try:
            by = {(line["through"], line["stream"]): line for line in lines}
            return {
                "server_ms": by["server", "text"]["cpu_ms"], "proxy_ms": by["ray", "text"]["proxy_cpu_ms"],
                "text_bytes": by["server", "text"]["bytes_per_token"],
                "canvas_bytes": by["server", "canvas"]["bytes_per_token"],
            }  # fmt: skip
        except KeyError as missing:
            raise RippleError(f"{self.host} lacks {missing}: measure it again.") from None


def weights_gb(config: ModelConfig) -> float:
    """Return what the weights take in bf16, the embedding and the head apart."""
    c = config
    per_layer = (c.n_heads * 2 + c.n_kv_heads * 2) * c.head_dim * c.d_model + 3 * c.d_ff * c.d_model
    return BF16 * (c.n_layers * per_layer + 2 * c.vocab_size * c.d_model) / 1e9


def parallel_line(
    n: int, rows: int = BLOCK, positions: int = 1256, copy_tb_s: float = 4.233, tflop_s: float = 789.0
) -> Line:
    """Return the least time of a cached step of a large model on n devices; nothing here was measured.

    Weights and keys are read in parallel. Each layer ends twice in an all-reduce of the rows' states, of
    which every device sends and receives 2 (n - 1) / n.
    """
    parameters, n_layers = float(LARGE["parameters"]), int(LARGE["n_layers"])
    states = BF16 * rows * LARGE["d_model"]
    keys = 2 * BF16 * n_layers * LARGE["kv_width"] * positions
    read_ms = (BF16 * parameters + keys) / n / copy_tb_s / 1e9
    compute_ms = 2 * parameters * rows / n / tflop_s / 1e9
    moved = 2 * states * (n - 1) / n
    reduce_ms = 2 * n_layers * (moved / LINK_GB_S / 1e6 + HOP_US / 1e3) if n > 1 else 0.0
    step_ms = max(read_ms, compute_ms) + reduce_ms
    return {
        "what": "parallel", "gpus": n, "rows": rows, "weights_gb": round(BF16 * parameters / 1e9 / n, 1),
        "fits": BF16 * parameters / 1e9 / n < 0.9 * 141, "read_ms": round(read_ms, 2),
        "compute_ms": round(compute_ms, 2), "reduce_ms": round(reduce_ms, 2), "step_ms": round(step_ms, 2),
    }  # fmt: skip


def draw(out: Path) -> dict[str, str]:
    """Write the tables and the figure of a result file beside it."""
    lines = read_lines(out)
    return draw_beside(out, scale_tables(out.name, lines), lambda figure: scale_figure(lines, figure))


def _percentile(values: Sequence[float], at: int) -> float:
    return round(statistics.quantiles(values, n=100, method="inclusive")[at - 1], 3)
