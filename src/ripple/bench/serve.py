"""The server under load: requests and tokens per second, latencies, and the engine's own speed beside it.

Short rounds of an engine in this process and of the server alternate, on the same prompts with the same
number of requests at a time, so that the ratio of the two holds on a machine whose speed changes. On one that
others use, too, the ratio of processor times (`cpu_ratio`) is the steadier one: what the engine needs for a
round over what the server process needs for the same answers. Requests differ in length: alike, they would
share every forward of the engine from their first to their last, which clients never do.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ripple.analysis.plots import draw_beside
from ripple.analysis.speed import serve_tables
from ripple.bench.fill import fill
from ripple.bench.http_client import Connection, Exchange
from ripple.bench.server_process import ServerProcess, serving
from ripple.engine.engine import Engine
from ripple.engine.load import load
from ripple.engine.result import Result
from ripple.errors import RippleError
from ripple.fields import param
from ripple.files import Line, read_lines
from ripple.measurement import Measurement, whole_numbers
from ripple.options import DECODER, Options

CLIENTS = (1, 2, 4, 8, 16, 32, 64)
LEAST = 4  # requests of a round
PERCENTILES = (50, 90, 99)
NAMES = ("Mia", "Hugo", "Kira", "Ada", "Leo", "Nora", "Otto", "Ines")


class ServePoint(NamedTuple):
    """What one line is about."""

    clients: int
    stream: bool


@dataclass(frozen=True)
class Serve(Measurement):
    """Load a server with 1 to 64 clients: throughput, latencies, and its share of the engine's own speed."""

    name = "serve"

    out: Path | None = param(
        None, "result lines; none is results/serve-DEVICE.jsonl; a run goes on where it ends"
    )
    model: str = param("tiny-llada", "an embedded model, a checkpoint folder or a hub id")
    device: str = param("cpu", "cpu, cuda or cuda:N")
    clients: str = param(",".join(map(str, CLIENTS)), "clients at a time, joined by commas")
    decoder: str = param(DECODER, "a decoder as it is typed")
    cache: str = param("none", "a cache as it is typed")
    length: int = param(32, "response positions of a request in the mean", within="[1, inf)")
    rounds: int = param(5, "rounds of the server, and as many of the engine", within="[1, inf)")
    each: int = param(2, "requests of each client in a round", within="[1, inf)")

    def run(self) -> dict[str, Any]:
        """Measure what `out` lacks."""
        out = self.out or Path("results") / f"serve-{self.device.partition(':')[0]}.jsonl"
        counts = whole_numbers("clients", self.clients, 1)
        points = [ServePoint(n, stream) for stream in (False, True) for n in counts]
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # as `ripple serve` does with an embedded model
        try:
            n_new = self._fill(out, points, max(counts))
        finally:
            torch.set_num_threads(threads)
        return {"bench": self.name, "new_lines": n_new, **draw(out)}

    def _fill(self, out: Path, points: Sequence[ServePoint], most: int) -> int:
        engine = load(self.model, device=self.device)
        words = ("--model", self.model, "--device", self.device, "--max-batch", str(most))
        with serving(*words, "--queue", str(2 * most)) as server:
            return fill(
                out, points, lambda line: ServePoint(line["clients"], line["stream"]),
                lambda point: self._line(point, engine, server), "loads",
            )  # fmt: skip

    def _line(self, point: ServePoint, engine: Engine, server: ServerProcess) -> Line:
        """Alternate rounds of the engine and of the server; a first one of each is not counted."""
        prompts = list(prompts_of(max(LEAST, self.each * point.clients)))
        lengths = [self.length // 2 + 1 + 7 * number % self.length for number in range(len(prompts))]
        options = [Options(self.decoder, n, cache=self.cache, stop_at_end=True) for n in lengths]
        bodies = [self._body(*pair, point.stream) for pair in zip(prompts, lengths, strict=True)]
        exchanges: list[Exchange] = []
        served, own, cpu, seconds = list[float](), list[float](), list[float](), 0.0
        for number in range(1 + self.rounds):
            cpu_start = time.process_time()
            results, engine_s = _decode(engine, prompts, options, point.clients)
            engine_cpu_s, cpu_start = time.process_time() - cpu_start, server.cpu_s()
            n_tokens = sum(len(result.new_tokens) for result in results)
            answers, server_s = asyncio.run(_load(server.url, bodies, point.clients))
            if [answer.text() for answer in answers] != [result.text for result in results]:
                raise RippleError("The server's answers differ from the engine's.")
            if number:
                own.append(n_tokens / engine_s)
                served.append(n_tokens / server_s)
                cpu.append(engine_cpu_s / (server.cpu_s() - cpu_start))
                exchanges += answers
                seconds += server_s
        return {
            "bench": self.name, "model": self.model, "decoder": self.decoder, "cache": self.cache,
            "length": self.length, **point._asdict(), "requests": len(exchanges),
            "seconds": round(seconds, 3), "rps": round(len(exchanges) / seconds, 2),
            "tps": round(statistics.median(served), 1), "engine_tps": round(statistics.median(own), 1),
            "ratio": round(statistics.median(s / e for s, e in zip(served, own, strict=True)), 3),
            "cpu_ratio": round(statistics.median(cpu), 3),
            "first_text_ms": _percentiles([one.first_s for one in exchanges]) if point.stream else None,
            "latency_ms": _percentiles([one.seconds for one in exchanges]), "torch": torch.__version__,
        }  # fmt: skip

    def _body(self, prompt: str, length: int, stream: bool) -> bytes:
        ours = {"decoder": self.decoder, "cache": self.cache}
        body = {"prompt": prompt, "max_tokens": length, "stream": stream, "ripple": ours}
        return json.dumps(body).encode()


def draw(out: Path) -> dict[str, str]:
    """Write the tables of a result file beside it, and name the files."""
    text = (
        f"# The server under load\n\nDrawn from `{out.name}`. *Share* is the server's tokens per second over "
        "the engine's own\nwith as many requests at a time; *by processor time*, the engine's over the "
        "server process's for the same answers.\nPercentiles are 50, 90 and 99.\n\n"
    )
    return draw_beside(out, text + serve_tables(read_lines(out)))


def prompts_of(n: int) -> Iterator[str]:
    """Yield n problems of the kind that the embedded models were trained on, all of them different."""
    for number in range(n):
        name, a, b, c = NAMES[number % len(NAMES)], 2 + number % 7, 3 + number % 11, 5 + number % 13
        yield (
            f"Question: {name} has {a} jars with {b} marbles each and {c} loose marbles. "
            "How many marbles are there?\nAnswer:\n"
        )


def _decode(
    engine: Engine, prompts: Sequence[str], options: Sequence[Options], n: int
) -> tuple[list[Result], float]:
    """Decode prompts, n at a time, and return the results and the seconds that it took."""
    engine.max_batch = n
    start = time.perf_counter()
    results = engine.generate(prompts, options)
    return results, time.perf_counter() - start


async def _load(url: str, bodies: Sequence[bytes], n: int) -> tuple[list[Exchange], float]:
    """Send bodies from n clients, each waiting for its answer, and return the answers in order."""
    left = iter(enumerate(bodies))
    answers: dict[int, Exchange] = {}

    async def client() -> None:
        connection = Connection(url)
        for number, body in left:
            answers[number] = await connection.post("/v1/completions", body)
        connection.close()

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(n)))
    return [answers[number] for number in range(len(bodies))], time.perf_counter() - start


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return milliseconds by percentile."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {f"p{at}": round(1e3 * cuts[at - 1], 2) for at in PERCENTILES}
