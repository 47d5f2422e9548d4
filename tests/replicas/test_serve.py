"""A real Ray Serve on this machine: two replicas, of which one is killed under load."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

import ripple
from ripple.models.random_checkpoint import write_random_checkpoint
from tests.server.conftest import Server, serving

pytestmark = pytest.mark.slow
BATCH, QUEUE = 2, 2
LONG = {"max_tokens": 256, "ignore_eos": True}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replicas") / "small"
    return write_random_checkpoint(folder, vocab_size=328, d_model=32, n_heads=2, d_ff=32)


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    words = ("--model", str(model), "--device", "cpu", "--decoder", "default", "--length", "16")
    limits = ("--max-batch", str(BATCH), "--queue", str(QUEUE))
    with serving(*words, *limits, "--ray", "--replicas", "2") as one:
        cluster = psutil.Process(one.process.pid).children(recursive=True)
        yield one
    assert one.process.returncode == 0
    _, alive = psutil.wait_procs(cluster, timeout=30)
    assert not alive


def ask(server: Server, prompt: str, **body: object) -> httpx.Response:
    body = {"prompt": prompt, **body}
    return httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)


def replicas(server: Server) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(server.process.pid).children(recursive=True):
        try:
            if "ServeReplica:ripple" in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_answers_are_those_of_the_engine_whole_and_streamed(server: Server, model: Path) -> None:
    engine = ripple.load(model, device="cpu")
    client = server.client()
    for prompt in ("1 + 1 =", "2 + 2 =", "3 + 3 ="):
        alone = engine.generate(prompt, decoder="default", length=16, stop_at_end=True).text
        whole = client.completions.create(model="small", prompt=prompt)
        parts = client.completions.create(model="small", prompt=prompt, stream=True)
        assert whole.choices[0].text == alone == "".join(part.choices[0].text for part in parts)


def test_metrics_are_those_of_every_replica(server: Server) -> None:
    for i in range(6):
        assert ask(server, f"{i} =").status_code == 200
    told = httpx.get(f"{server.url}/metrics").text
    samples = [one for family in text_string_to_metric_families(told) for one in family.samples]
    healthy = {one.labels["replica"]: one.value for one in samples if one.name == "ripple_healthy"}
    assert list(healthy.values()) == [1, 1]
    assert sum(one.value for one in samples if one.name == "ripple_requests_total") >= 6


def test_overflow_is_our_own_429(server: Server) -> None:
    n = 4 * (BATCH + QUEUE)
    with ThreadPoolExecutor(n) as pool:
        answers = list(pool.map(lambda i: ask(server, f"{i} =", **LONG), range(n)))
    refused = [answer for answer in answers if answer.status_code != 200]
    assert 0 < len(refused) <= n - 2 * BATCH and {answer.status_code for answer in refused} == {429}
    assert all(answer.json()["error"]["code"] == "queue_full" for answer in refused)
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)


def test_a_client_that_leaves_frees_its_place(server: Server) -> None:
    with httpx.stream(
        "POST", f"{server.url}/v1/completions", json={"prompt": "1", "stream": True} | LONG
    ) as stream:
        next(stream.iter_lines())
    deadline = time.monotonic() + 20
    idle = 0
    while idle < 8:  # of either replica, whichever answers
        assert time.monotonic() < deadline
        health = httpx.get(f"{server.url}/health").json()
        idle = idle + 1 if health == {"status": "ok", "running": 0, "waiting": 0} else 0


def test_a_killed_replica_costs_the_requests_it_held_and_comes_back(server: Server) -> None:
    n, stop = BATCH, threading.Event()
    answers: list[tuple[float, httpx.Response]] = []

    def client(number: int) -> None:
        while not stop.is_set():
            sent = time.monotonic()
            answers.append((sent, ask(server, f"{number} =", **LONG)))

    with ThreadPoolExecutor(n) as pool:
        clients = [pool.submit(client, number) for number in range(n)]
        try:
            while len(answers) < 2 * n:
                time.sleep(0.02)
            victim = replicas(server)[0]
            victim.kill()
            killed = time.monotonic()
            deadline = killed + 40
            while len([one for one in replicas(server) if one.pid != victim.pid]) < 2:  # without a hand
                assert time.monotonic() < deadline
                time.sleep(0.1)
        finally:
            stop.set()
        for one in clients:
            one.result()
    failed = [(sent, answer) for sent, answer in answers if answer.status_code != 200]
    assert len(failed) <= n and all(sent <= killed for sent, _ in failed)  # those in flight, and no later one
    assert all(answer.status_code == 503 and answer.headers["retry-after"] == "1" for _, answer in failed)
    assert all(answer.json()["error"]["code"] == "replica_lost" for _, answer in failed)
    assert any(sent > killed and answer.status_code == 200 for sent, answer in answers)
