"""Kills the driver, a worker or a node of a batch job on Ray at random moments, and checks what comes of it.

    python tools/kill_ray.py --kills 100 --out results/survival-cpu.jsonl

The cluster has a head without workers and two nodes with one worker each, all on this machine; a node is
killed by SIGKILL to its raylet and replaced. A job goes on through the loss of workers and nodes; a killed
driver is started again. Finished jobs are compared with one process's.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from kill_jobs import batch_found, write_prompts

import ripple
from ripple.files import append_line
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.pool.cluster import Cluster as Workers

VICTIMS = ("driver", "worker", "node")
N_ROWS = 240
STORE = 100_000_000
NODE = {"num_cpus": 1, "object_store_memory": STORE}
AFTER_ROWS = 0.75  # of the kills come after new rows were written, the others at any time
CALM_S = 1.5  # then a random time up to this
PATIENCE_S = 180.0


class Victims:
    """A cluster on this machine, and a driver that uses it."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        Workers().ray()  # sets what keeps Ray on the loopback device
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False},
        )
        for _ in range(2):
            self.cluster.add_node(**NODE)
        self.folder, self.rng = folder, rng
        self.driver: subprocess.Popen[bytes] | None = None
        self.kills: Counter[str] = Counter()

    def start(self, out: Path, *more: str) -> None:
        """Start or resume a job."""
        command = [
            sys.executable, "-m", "ripple", "batch", "--input", str(self.folder / "prompts.jsonl"),
            "--output", str(out), "--model", str(self.folder / "model"), "--device", "cpu", "--decoder",
            "default", "--batch", "2", "--json", *more,
        ]  # fmt: skip
        self.driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    @property
    def is_running(self) -> bool:
        """Whether the driver runs."""
        return self.driver is not None and self.driver.poll() is None

    def kill(self, victim: str) -> bool:
        """Kill one of them; return whether there was one to kill."""
        assert self.driver is not None
        if victim == "driver":
            if self.driver.poll() is not None:
                return False
            self.driver.kill()
            self.driver.wait()
        elif victim == "worker":
            workers = [one for one in psutil.Process().children(recursive=True) if is_worker(one)]
            if not workers:
                return False
            self.rng.choice(workers).kill()
        else:
            node = self.rng.choice(list(self.cluster.worker_nodes))
            node.all_processes["raylet"][0].process.kill()
            self.cluster.remove_node(node, allow_graceful=False)
            self.cluster.add_node(**NODE)
        self.kills[victim] += 1
        return True


def is_worker(process: psutil.Process) -> bool:
    """Say whether a process is a worker of ours."""
    try:
        return "MapWorker" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def one_job(victims: Victims, out: Path, n_kills: int) -> None:
    """Run a job to its end while its driver, workers and nodes are killed."""
    victims.start(out, "--address", victims.cluster.address, "--workers", "2")
    while victims.kills.total() < n_kills and wait_for_moment(victims, out / "unfinished.jsonl"):
        if victims.kill(victims.rng.choice(VICTIMS)) and not victims.is_running:
            victims.start(out, "--address", victims.cluster.address, "--workers", "2")
    assert victims.driver is not None and victims.driver.stderr is not None
    if victims.driver.wait(PATIENCE_S) != 0:
        raise SystemExit(f"the job ended with an error: {victims.driver.stderr.read().decode()}")


def wait_for_moment(victims: Victims, unfinished: Path) -> bool:
    """Wait for a random moment, mostly one after new rows; return whether the job still runs then."""
    before = rows_in(unfinished)
    deadline = time.monotonic() + PATIENCE_S
    if victims.rng.random() < AFTER_ROWS:
        while victims.is_running and rows_in(unfinished) <= before:
            assert time.monotonic() < deadline, f"no rows since {before} bytes"
            time.sleep(0.05)
    end = time.monotonic() + victims.rng.uniform(0, CALM_S)
    while victims.is_running and time.monotonic() < end:
        time.sleep(0.02)
    return victims.is_running


def rows_in(unfinished: Path) -> int:
    """Return how many bytes of finished rows there are."""
    return unfinished.stat().st_size if unfinished.exists() else 0


def run(n_kills: int, seed: int, folder: Path) -> dict[str, Any]:
    """Run jobs until there were so many kills, and sum up what they came to."""
    write_random_checkpoint(folder / "model", vocab_size=328, d_model=32, n_heads=2, d_ff=32)
    write_prompts(folder / "prompts.jsonl", N_ROWS, length=64)
    victims = Victims(folder, random.Random(seed))
    try:
        victims.start(folder / "calm")
        assert victims.driver is not None and victims.driver.wait() == 0
        calm = batch_found(folder / "calm")
        jobs = lost = doubled = same = 0
        while victims.kills.total() < n_kills:
            out = folder / f"job{jobs}"
            one_job(victims, out, n_kills)
            found = batch_found(out)
            jobs += 1
            lost += len(set(calm.names) - set(found.names))
            doubled += len(found.names) - len(set(found.names))
            same += found.content == calm.content
            print(
                f"{dict(victims.kills)}, {jobs} jobs: {lost} lost, {doubled} doubled, {same} identical",
                file=sys.stderr,
            )
    finally:
        if victims.driver is not None:
            victims.driver.kill()
        victims.cluster.shutdown()
    return {
        "bench": "kill", "what": "batch on ray", "victim": dict(victims.kills), "n": victims.kills.total(),
        "jobs": jobs, "rows": N_ROWS, "lost": lost, "doubled": doubled, "identical": same, "seed": seed,
        "ripple": ripple.__version__, "ray": Workers().ray().__version__, "python": platform.python_version(),
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as place:
        append_line(args.out, run(args.kills, args.seed, Path(place)))
