"""Measures what a request costs beside decoding: the server's processor time, a Ray proxy's, and bytes.

    python tools/measure_host.py --out results/host-cpu.jsonl

A model of some thousand weights is served, by `ripple serve` and through Ray Serve, to a few clients. Of the
server's processor time what the engine alone needs for the same prompts is taken off. All of it is this
machine's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch

import ripple
from ripple.bench.http_client import Connection, Exchange
from ripple.bench.server_process import ServerProcess
from ripple.files import append_line
from ripple.models.random_checkpoint import write_random_checkpoint

CLIENTS, LENGTH, PROMPT = 4, 64, "12 + 34 = " * 10
STREAMS: dict[str | None, dict[str, Any]] = {
    None: {}, "text": {"stream": True}, "canvas": {"stream": True, "ripple": {"stream": "canvas"}},
}  # fmt: skip
PROXIES = ("ProxyActor", "HAProxy", "haproxy")
WORDS = ("--device", "cpu", "--decoder", "confidence", "--length", str(LENGTH), "--max-batch", "4")


async def load(url: str, body: bytes, n: int) -> list[Exchange]:
    """Send n requests from a few clients."""
    left = iter(range(n))
    answers: list[Exchange] = []

    async def client() -> None:
        connection = Connection(url)
        for _ in left:
            answers.append(await connection.post("/v1/completions", body))
        connection.close()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    assert all(answer.status == 200 for answer in answers), answers[0].body
    return answers


def engine_ms(model: Path, n: int) -> float:
    """Return the processor time of the engine alone for one of the requests."""
    engine = ripple.load(model, device="cpu")
    engine.max_batch = CLIENTS
    how = ripple.Options("confidence", LENGTH, stop_at_end=True)
    engine.generate([PROMPT] * CLIENTS, how)
    start = time.process_time()
    engine.generate([PROMPT] * n, how)
    return (time.process_time() - start) / n * 1e3


def cpu_s(processes: list[psutil.Process]) -> float:
    """Return the processor time that processes have used."""
    return sum(sum(one.cpu_times()[:2]) for one in processes)


def measured(
    url: str,
    stream: str | None,
    n: int,
    server: Callable[[], float],
    proxy: Callable[[], float],
    own_ms: float,
) -> dict[str, Any]:
    """Return what a request costs, and how long its answer is."""
    body = json.dumps({"prompt": PROMPT, "max_tokens": LENGTH, **STREAMS[stream]}).encode()
    asyncio.run(load(url, body, n // 4))
    before, start = (server(), proxy()), time.perf_counter()
    answers = asyncio.run(load(url, body, n))
    n_bytes = sum(len(answer.body) for answer in answers)
    return {
        "stream": stream, "requests": n, "seconds": round(time.perf_counter() - start, 2), "length": LENGTH,
        "cpu_ms": round(1e3 * (server() - before[0]) / n - own_ms, 3), "engine_ms": round(own_ms, 3),
        "proxy_cpu_ms": round(1e3 * (proxy() - before[1]) / n, 3),
        "bytes": round(n_bytes / n), "bytes_per_token": round(n_bytes / n / LENGTH, 1),
    }  # fmt: skip


@contextmanager
def on_ray(model: Path) -> Iterator[tuple[str, list[psutil.Process], list[psutil.Process]]]:
    """Serve through Ray and yield the address, the replica's and the proxy's processes."""
    command = [
        sys.executable,
        "-m",
        "ripple",
        "serve",
        "--ray",
        "--model",
        str(model),
        "--port",
        "8765",
        *WORDS,
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "listening at" in line)
        url = said.split("listening at ")[1].split()[0]
        below = psutil.Process(process.pid).children(recursive=True)
        names = {one: " ".join(one.cmdline()) for one in below}
        yield (
            url,
            [one for one, name in names.items() if "ServeReplica:ripple" in name],
            [one for one, name in names.items() if any(proxy in name for proxy in PROXIES)],
        )
    finally:
        process.terminate()
        process.wait(60)


def run(n: int, out: Path, folder: Path) -> None:
    """Measure the server and the proxy and add their lines."""
    model = write_random_checkpoint(folder / "m", vocab_size=330, d_model=8, n_layers=1, n_heads=2, d_ff=8)
    own_ms = engine_ms(model, n)
    about = {"bench": "host", "machine": f"{os.cpu_count()} cores", "python": platform.python_version()}
    server = ServerProcess("--model", str(model), *WORDS)
    try:
        for stream in STREAMS:
            line = measured(server.url, stream, n, server.cpu_s, lambda: 0.0, own_ms)
            append_line(out, about | {"through": "server"} | line)
    finally:
        server.process.terminate()
        server.process.wait(60)
    with on_ray(model) as (url, replicas, proxies):
        assert replicas and proxies, "no process of a replica or of a proxy"
        for stream in ("text", "canvas"):
            line = measured(url, stream, n, lambda: cpu_s(replicas), lambda: cpu_s(proxies), own_ms)
            append_line(out, about | {"through": "ray"} | line)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as place:
        run(args.requests, args.out, Path(place))
