"""Kills replicas behind Ray Serve under load, and updates them: what fails, and when all is well again.

    python tools/kill_replicas.py --kills 30 --updates 4 --out results/survival-cpu.jsonl

Two replicas of a small random model serve a few clients, half of which stream. Every answer is compared with
what the engine says alone. A request that fails must have been in flight when a replica was killed, and be
told so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil

import ripple
from ripple.files import append_line
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.pool.cluster import Cluster
from ripple.replicas import NAME, REPLICA
from ripple.replicas.run import MIDDLEWARE

CLIENTS, LENGTH, BATCH = 4, 96, 4
PROMPTS = [f"{i} + {i} =" for i in range(8)]
PATIENCE_S = 120.0


class Answer(NamedTuple):
    """What came of one request."""

    sent: float
    ended: float
    kind: str  # right, wrong, lost (503 or a stream's error event, as promised) or other
    said: str


class Clients:
    """Threads that send one request after the other."""

    def __init__(self, url: str, texts: dict[str, str]) -> None:
        self.answers: list[Answer] = []
        self._url, self._texts = url, texts
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CLIENTS)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, n: int) -> None:
        """Wait for so many more right answers."""
        wanted, deadline = self.n_right + n, time.monotonic() + PATIENCE_S
        while self.n_right < wanted:
            assert time.monotonic() < deadline, "no more answers"
            time.sleep(0.02)

    @property
    def n_right(self) -> int:
        """Right answers so far."""
        return sum(answer.kind == "right" for answer in self.answers)

    def _run(self, number: int) -> None:
        rng = random.Random(number)
        with httpx.Client(timeout=PATIENCE_S) as client:
            while not self._stop.is_set():
                prompt, sent = rng.choice(PROMPTS), time.monotonic()
                body = {"prompt": prompt, "stream": number % 2 == 0}
                try:
                    kind, said = self._judge(prompt, client.post(f"{self._url}/v1/completions", json=body))
                except httpx.HTTPError as error:
                    kind, said = "other", repr(error)
                self.answers.append(Answer(sent, time.monotonic(), kind, said))

    def _judge(self, prompt: str, answer: httpx.Response) -> tuple[str, str]:
        text, lost = answer.text, ""
        if answer.status_code == 503 and answer.headers.get("retry-after"):
            lost = answer.json()["error"]["code"]
        elif answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream"):
            events = [event.removeprefix("data: ") for event in answer.text.strip().split("\n\n")]
            if events[-1] == "[DONE]":
                text = "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1])
            else:
                lost = json.loads(events[-1])["error"]["code"]
        elif answer.status_code == 200:
            text = answer.json()["choices"][0]["text"]
        if lost:
            return ("lost" if lost == "replica_lost" else "other"), text
        if answer.status_code != 200:
            return "other", f"{answer.status_code} {text}"
        return ("right" if text == self._texts[prompt] else "wrong"), text


def replicas() -> list[psutil.Process]:
    """Return the processes of the replicas that live."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if (
                "ServeReplica:ripple" in " ".join(process.cmdline())
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
        except psutil.Error:
            continue
    return found


def n_ready() -> int:
    """Return how many replicas have loaded their model, as Serve knows."""
    from ray import serve

    return int(serve.status().applications[NAME].deployments[REPLICA].replica_states.get("RUNNING", 0))


def deploy(address: str, port: int, model: Path, queue: int) -> None:
    """Deploy the application, or update it when its options differ."""
    command = [
        sys.executable, "-m", "ripple", "serve", "--model", str(model), "--device", "cpu", "--decoder",
        "default", "--length", str(LENGTH), "--max-batch", str(BATCH), "--queue", str(queue), "--port",
        str(port), "--ray", "--replicas", "2", "--address", address,
    ]  # fmt: skip
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def kill_some(clients: Clients, n_kills: int, rng: random.Random) -> tuple[list[float], list[float]]:
    """Kill replicas one after the other; return when, and after how long there were two again."""
    moments, back = [], []
    for number in range(n_kills):
        clients.wait_for(CLIENTS)
        time.sleep(rng.uniform(0, 1))
        victim = rng.choice(replicas())
        moments.append(time.monotonic())
        victim.kill()
        deadline = time.monotonic() + PATIENCE_S
        while len([one for one in replicas() if one.pid != victim.pid]) < 2 or n_ready() < 2:
            assert time.monotonic() < deadline, "no new replica"
            time.sleep(0.05)
        back.append(time.monotonic() - moments[-1])
        clients.wait_for(2 * CLIENTS)
        print(f"{number + 1} kills, two replicas again after {back[-1]:.1f} s", file=sys.stderr)
    return moments, back


def run(n_kills: int, n_updates: int, seed: int, folder: Path) -> dict[str, Any]:
    """Kill and update under load, and sum up what the clients saw."""
    os.environ.update(MIDDLEWARE)
    ray = Cluster().ray()
    from ray.cluster_utils import Cluster as RayCluster

    model = write_random_checkpoint(folder / "small", vocab_size=328, d_model=32, n_heads=2, d_ff=32)
    engine = ripple.load(model, device="cpu")
    how = ripple.Options("default", LENGTH, stop_at_end=True)
    texts = {prompt: engine.generate(prompt, how).text for prompt in PROMPTS}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cluster = RayCluster(
        initialize_head=True,
        head_node_args={"num_cpus": 3, "object_store_memory": 100_000_000, "include_dashboard": False},
    )
    try:
        deploy(cluster.address, port, model, queue=64)
        here = Cluster(address=cluster.address)
        with here.joined(), Clients(f"http://127.0.0.1:{port}", texts) as clients:
            moments, back = kill_some(clients, n_kills, random.Random(seed))
            before = len(clients.answers)
            for number in range(n_updates):
                deploy(cluster.address, port, model, queue=65 + number)
                clients.wait_for(2 * CLIENTS)
                print(f"{number + 1} updates", file=sys.stderr)
    finally:
        cluster.shutdown()
    failed = [answer for answer in clients.answers if answer.kind != "right"]
    in_flight = [a for a in failed if any(a.sent <= moment <= a.ended for moment in moments)]
    return {
        "bench": "kill", "what": "serve on ray", "victim": "replica", "n": n_kills, "clients": CLIENTS,
        "requests": len(clients.answers), "failed": len(failed),
        "failed_that_were_not_in_flight": len(failed) - len(in_flight),
        "failed_without_503": sum(answer.kind != "lost" for answer in failed),
        "wrong": sum(answer.kind == "wrong" for answer in clients.answers),
        "back_s": [round(statistics.median(back), 1), round(max(back), 1)], "updates": n_updates,
        "failed_in_updates": sum(answer.kind != "right" for answer in clients.answers[before:]), "seed": seed,
        "ripple": ripple.__version__, "ray": ray.__version__, "python": platform.python_version(),
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        append_line(args.out, run(args.kills, args.updates, args.seed, Path(place)))
