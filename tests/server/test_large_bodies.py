"""Bodies made to cost much: while they are refused others are answered, and their memory is given back."""

from __future__ import annotations

import json
import re
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.server.conftest import Server, until

MB = 1 << 20
PROMPT, MESSAGES = '{"max_tokens": 1, "prompt": ', '{"max_tokens": 1, "messages": '
OURS = '{"prompt": "a", "ripple": '


def listed(item: str, n: int) -> str:
    return f"[{','.join([item] * n)}]"


def keyed(n: int) -> str:
    return "{" + ",".join(f'"k{i}": 1' for i in range(n)) + "}"


# What it is -> the body, of at most 4 MB.
BODIES = {
    "token ids": PROMPT + listed("1", 2_000_000) + "}",
    "lists without an id": PROMPT + listed("[]", 1_390_000) + "}",
    "lists of a string": PROMPT + listed('["a"]', 690_000) + "}",
    "lists of many strings": PROMPT + listed(listed('"a"', 1000), 15) + "}",
    "empty strings": PROMPT + listed('""', 1_390_000) + "}",
    "text of words": PROMPT + json.dumps("hello wor " * 410_000) + "}",
    "text of one word": PROMPT + json.dumps("a" * 4_100_000) + "}",
    "stops that are numbers": PROMPT + '"a", "stop": ' + listed("0", 2_000_000) + "}",
    "messages that are numbers": MESSAGES + listed("0", 2_000_000) + "}",
    "messages of another shape": MESSAGES + listed('{"contnt": 1}', 290_000) + "}",
    "parts that are numbers": MESSAGES + f'[{{"role": "user", "content": {listed("0", 2_000_000)}}}]}}',
    "parts without text": MESSAGES
    + f'[{{"role": "user", "content": {listed(json.dumps({"type": "text"}), 220_000)}}}]}}',
    "a chat of words": MESSAGES + json.dumps([{"role": "user", "content": "hello wor " * 410_000}]) + "}",
    "options": OURS + keyed(250_000) + "}",
    "many options": OURS + keyed(10_000) + "}",
    "labels": '{"prompt": "a", "metadata": ' + keyed(250_000) + "}",
    "a long field": json.dumps({"prompt": "a", "x" * 4_000_000: 1}),
    "a long option": OURS + json.dumps({"x" * 4_000_000: 1}) + "}",
    "brackets": '{"prompt": ' + "[" * 4_000_000,
    "a long number": '{"prompt": "a", "seed": ' + "9" * 4_000_000 + "}",
    "text that hides its lists": '{"user": "\\\\\\"\\\\", "prompt": ' + listed("[]", 1_390_000) + "}",
}  # fmt: skip


class Watch:
    """Asks for /health again and again, and keeps the times."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.seconds: list[float] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        stop = threading.Event()

        def ask() -> None:
            with self._server.http() as http:
                while not (stop.wait(0.01) and self.seconds):
                    start = time.perf_counter()
                    assert http.get("/health").status_code == 200
                    self.seconds.append(time.perf_counter() - start)

        thread = threading.Thread(target=ask)
        thread.start()
        until(lambda: self.seconds)
        try:
            yield
        finally:
            stop.set()
            thread.join()


def memory(server: Server, name: str) -> int:
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.findall(rf"{name}:\s+(\d+) kB", text)[0]) * 1024


@pytest.fixture(scope="module")
def patience(server: Server) -> float:
    """How long /health may take on a machine that others may use, too."""
    watch = Watch(server)
    with watch.watching():
        time.sleep(1)
    return 0.5 + 10 * statistics.median(watch.seconds)


def post(http: httpx.Client, body: str | bytes) -> httpx.Response:
    path = "/v1/chat/completions" if '"messages"' in str(body[:40]) else "/v1/completions"
    return http.post(path, content=body, headers={"Content-Type": "application/json"})


@pytest.mark.parametrize("name", BODIES)
def test_while_a_costly_body_is_refused_others_are_answered(
    server: Server, patience: float, name: str
) -> None:
    assert len(BODIES[name]) <= 4 * MB
    watch, peak = Watch(server), memory(server, "VmHWM")
    with server.http() as http, watch.watching():
        told = post(http, BODIES[name])
    assert told.status_code == 400 and len(told.content) < 3000
    assert max(watch.seconds) < patience
    assert memory(server, "VmHWM") - peak < 200 * MB


def test_the_memory_of_what_was_refused_is_given_back(server: Server) -> None:
    def rest() -> int:
        time.sleep(1.5)
        return memory(server, "VmRSS")

    with server.http() as http:
        post(http, BODIES["token ids"])
        before = rest()
        for _ in range(5):
            post(http, BODIES["token ids"])
    assert rest() - before < 20 * MB


def test_clients_that_leave_while_their_long_prompts_are_prepared_delay_nobody(server: Server) -> None:
    """Each of the prompts could fit; together they take seconds to be tokenised."""
    body = json.dumps({"prompt": ["hello wor " * 190] * 250, "max_tokens": 1}).encode()
    url = httpx.URL(server.url)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n".encode()

    def tiny(http: httpx.Client) -> float:
        start = time.perf_counter()
        answer = http.post("/v1/completions", json={"prompt": "a" * 21_000, "max_tokens": 1})
        assert answer.status_code == 400, "a large body, too: it has to wait for its turn"
        assert http.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200
        return time.perf_counter() - start

    with server.http() as http:
        alone = statistics.median(tiny(http) for _ in range(3))
        clients = [socket.create_connection((url.host, url.port or 80)) for _ in range(10)]
        for client in clients:
            client.sendall(head + b"Content-Type: application/json\r\n\r\n" + body)
        until(lambda: http.get("/health").json()["waiting"] >= 8)
        for client in clients:
            client.close()
        assert tiny(http) < 1 + 5 * alone
        assert http.get("/health").json()["waiting"] == 0
