"""What a server does under load and at its end: vanishing clients, full queues, slow readers, signals."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from ripple.canvas import MOST_ROWS
from tests.server.conftest import CHAT, PROMPT, Server, serving, until

ONE_BY_ONE = {"prompt": PROMPT, "ignore_eos": True, "ripple": {"decoder": "default"}}  # a token per forward
KEY = "s3cret"
LONG, SHORT = ONE_BY_ONE | {"max_tokens": 96}, ONE_BY_ONE | {"max_tokens": 16}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(
        "--length", "32", "--max-batch", "4"
    ) as one:  # a tick of many takes much longer than one of one
        yield one


@pytest.fixture
def usual_server() -> Iterator[Server]:
    with serving() as one:
        yield one


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server that asks for a key and has little room."""
    words = ("--max-batch", "1", "--queue", "2", "--length", "32")
    with serving(*words, env={"RIPPLE_API_KEY": f" {KEY}\n"}) as one:  # as a file may have it
        yield one


def gauge(server: Server, name: str) -> float:
    """One value of /metrics."""
    with server.http() as http:
        found = re.findall(rf"^{re.escape(name)}{{[^}}]*}} (\S+)$", http.get("/metrics").text, re.MULTILINE)
    assert found, name
    return sum(map(float, found))


def solo_seconds(server: Server) -> float:
    """How long a short request takes alone."""
    with server.http() as http:
        times = []
        for _ in range(3):
            start = time.perf_counter()
            assert http.post("/v1/completions", json=SHORT).status_code == 200
            times.append(time.perf_counter() - start)
    return sorted(times)[1]


def sent(server: Server, body: dict[str, Any], window: int = 1 << 16) -> socket.socket:
    """Send a body, read nothing, and return the connection."""
    data, url = json.dumps(body).encode(), httpx.URL(server.url)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n"
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    connection.connect((url.host, url.port or 80))
    connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + data)
    return connection


def leave(server: Server, body: dict[str, Any], n: int) -> None:
    """Have n clients send a body and, when all are decoded or wait, close their connections."""
    clients = [sent(server, body) for _ in range(n)]
    until(lambda: gauge(server, "ripple_requests_running") + gauge(server, "ripple_requests_waiting") >= n)
    for client in clients:
        client.close()


def answered_after_200_vanished(server: Server, stream: bool) -> float:
    """Seconds that one client's answer takes when 200 others have just left."""
    leave(server, LONG | {"stream": stream}, 200)
    start = time.perf_counter()
    with server.http() as http:
        assert http.post("/v1/completions", json=SHORT).status_code == 200
    seconds = time.perf_counter() - start
    until(lambda: gauge(server, "ripple_requests_running") == gauge(server, "ripple_requests_waiting") == 0)
    assert gauge(server, "vllm:num_requests_running") == gauge(server, "vllm:num_requests_waiting") == 0
    return seconds


@pytest.mark.parametrize("stream", [False, True])
def test_after_200_vanished_clients_an_answer_takes_three_solo_times_at_most(
    server: Server, stream: bool
) -> None:
    alone = solo_seconds(server)
    assert answered_after_200_vanished(server, stream) < 3 * alone


def test_at_the_defaults_it_takes_five_seconds_at_most(usual_server: Server) -> None:
    """The clients' last tick ends first, one of a whole batch: much more than a tick of one request."""
    assert answered_after_200_vanished(usual_server, stream=False) < 5


def test_the_log_has_no_prompts_unless_they_are_wanted(server: Server) -> None:
    with server.http() as http:
        told = http.post("/v1/completions", json=SHORT, headers={"X-Request-Id": "me-2"}).json()
    until(lambda: any('"me-2"' in line for line in server.lines))
    (line,) = (json.loads(line) for line in server.lines if '"me-2"' in line)
    assert line["prompt_tokens"] == told["usage"]["prompt_tokens"] and not {"body", "texts"} & set(line)
    assert not any("marbles" in line for line in server.lines)


def test_metrics_count_what_was_decoded_under_both_names(server: Server) -> None:
    names = ["prompt_tokens_total", "generation_tokens_total"]
    before = [gauge(server, f"ripple_{name}") for name in names]
    forwards = gauge(server, "ripple_forwards_total")
    with server.http() as http:
        told = http.post("/v1/completions", json=SHORT | {"n": 2}).json()
        streamed = http.post("/v1/completions", json=SHORT | {"stream": True})
        page = http.get("/metrics").text
    assert streamed.status_code == 200
    usage = told["usage"]
    prompt, answer = (gauge(server, f"ripple_{name}") for name in names)
    assert prompt - before[0] == 3 * usage["prompt_tokens"]
    assert answer - before[1] == 1.5 * usage["completion_tokens"]
    assert gauge(server, "ripple_forwards_total") - forwards == 1.5 * told["ripple"]["nfe"]
    for alias, own in (
        ("vllm:prompt_tokens_total", "ripple_prompt_tokens_total"),
        ("vllm:diffusion_num_denoising_steps_total", "ripple_forwards_total"),
        ("vllm:e2e_request_latency_seconds_count", "ripple_request_seconds_count"),
        ("vllm:time_to_first_token_seconds_count", "ripple_time_to_first_text_seconds_count"),
    ):
        assert gauge(server, alias) == gauge(server, own) > 0
    assert 'finished_reason="length"' in page and 'model_name="tiny-llada"' in page
    assert 'finished_reason="end"' not in page, "vLLM's dashboards know it as a stop"
    assert gauge(server, "ripple_most_rows") == MOST_ROWS, "no budget was given"


def test_a_slow_reader_holds_nobody_up(server: Server) -> None:
    alone = solo_seconds(server)
    body = {"prompt": PROMPT, "max_tokens": 64, "stream": True, "ignore_eos": True}
    how = {"stream": "canvas", "decoder": "default", "cache": "dual"}
    slow = sent(server, body | {"ripple": how}, window=4096)
    until(lambda: gauge(server, "ripple_requests_running") == 1)
    until(lambda: gauge(server, "ripple_requests_running") == 0)
    assert solo_seconds(server) < 3 * alone
    slow.settimeout(30)
    got = b""
    while b"[DONE]" not in got[-200:]:
        part = slow.recv(1 << 16)
        assert part
        got += part
    slow.close()
    assert got.count(b'"event": "forward"') == 64


def test_a_full_queue_is_a_429_with_a_time_to_wait(guarded: Server) -> None:
    async def crowd(url: str) -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
            asked = [client.completions.create(model="tiny-llada", prompt=PROMPT) for _ in range(12)]
            return await asyncio.gather(*asked, return_exceptions=True)

    outcomes = asyncio.run(crowd(guarded.url))
    refused = [one for one in outcomes if isinstance(one, openai.RateLimitError)]
    served = [one for one in outcomes if not isinstance(one, Exception)]
    assert len(refused) + len(served) == 12 and len(served) >= 3 and refused
    assert int(refused[0].response.headers["retry-after"]) >= 1
    assert refused[0].code == "queue_full" and "2 requests are waiting" in refused[0].message
    with guarded.http(auth=("", KEY)) as http:
        too_many = http.post("/v1/completions", json=SHORT | {"n": 3})
        assert too_many.status_code == 400 and too_many.json()["error"]["param"] == "n"


def test_a_key_is_needed_on_every_route_but_health(guarded: Server) -> None:
    with guarded.http() as http:
        paths = http.get("/openapi.json", auth=("anybody", KEY)).json()["paths"]
        for path in [*paths, "/", "/docs", "/openapi.json", "/static/x", "/nowhere"]:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {KEY}"}):
                told = http.get(path, headers=headers)
                assert told.status_code == (200 if path == "/health" else 401), path
        assert http.get("/").headers["www-authenticate"].startswith("Basic"), "a browser asks its user"
        assert http.get("/v1/models", headers={"Authorization": f"bearer {KEY}"}).status_code == 200
    with pytest.raises(openai.AuthenticationError):
        guarded.client().models.list()
    assert [model.id for model in guarded.client(api_key=KEY).models.list()] == ["tiny-llada"]


def test_sigterm_finishes_what_is_being_decoded_and_stops() -> None:
    async def interrupted(server: Server) -> Any:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            how: Any = {"model": "tiny-llada", "messages": CHAT, "max_tokens": 200}
            stream = await client.chat.completions.create(**how, stream=True)
            whole = asyncio.ensure_future(client.chat.completions.create(**how))
            texts = []
            async for chunk in stream:
                if not texts:
                    await asyncio.to_thread(until, lambda: gauge(server, "ripple_requests_running") == 2)
                    server.process.send_signal(signal.SIGTERM)
                texts.append(chunk.choices[0].delta.content or "")
            return "".join(texts), (await whole).choices[0].message.content

    with serving() as server:
        streamed, whole = asyncio.run(interrupted(server))
        assert streamed == whole and len(streamed) > 100
        assert server.process.wait(30) == 0
        with pytest.raises(httpx.ConnectError), server.http() as http:
            http.get("/health")


def test_who_still_waits_when_the_drain_is_over_is_told_so() -> None:
    async def given_up(server: Server) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            endless = ONE_BY_ONE | {"max_tokens": 400}
            asked = [http.post("/v1/completions", json=endless | {"stream": s}) for s in (False, True)]
            waiting = asyncio.gather(*asked)
            await asyncio.to_thread(until, lambda: gauge(server, "ripple_requests_running") == 2)
            server.process.send_signal(signal.SIGINT)
            return await waiting

    with serving("--drain", "0.2") as server:
        whole, stream = asyncio.run(given_up(server))
        assert whole.status_code == 503 and whole.json()["error"]["code"] == "engine_stopped"
        *_, fault, last = stream.text.strip().split("\n\n")
        assert '"engine_stopped"' in fault and last == "data: [DONE]"
        assert server.process.wait(60) == 130
        server.stop()  # reads the rest of its lines
        assert not any("Traceback" in line for line in server.lines)


def test_a_dead_engine_is_a_503(server: Server) -> None:
    code = """
import os, sys, threading, ripple
from ripple.server.options import ServerOptions
from ripple.server.run import run
from ripple.server.service import Service
engine = ripple.load("tiny-llada")
service = Service(engine, "tiny-llada", limits=ServerOptions(port=0))
def crash():
    raise MemoryError("the host is out of memory")
engine.tick = crash
run(service, lambda url: print("listening at", url, file=sys.stderr, flush=True))
"""
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    url = process.stderr.readline().split()[-1]
    try:
        with httpx.Client(base_url=url, timeout=30) as http:
            assert http.get("/health").status_code == 200
            first = http.post("/v1/completions", json=SHORT)
            assert first.status_code == 503 and "memory" not in first.text, "no internals"
            told = http.get("/health")
            assert told.status_code == 503 and told.headers["retry-after"]
            assert told.json()["error"]["code"] == "engine_stopped"
            assert http.post("/v1/completions", json=SHORT | {"stream": True}).status_code == 503
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()


def test_a_request_that_takes_too_long_is_a_504_and_a_slow_body_a_408() -> None:
    with serving("--timeout", "0.4") as server, server.http() as http:
        told = http.post("/v1/completions", json=LONG)
        assert told.status_code == 504 and "longer than 0.4 s" in told.json()["error"]["message"]
        last = http.post("/v1/completions", json=LONG | {"stream": True}).text.strip().splitlines()
        assert '"code": "timeout"' in last[-3] and last[-1] == "data: [DONE]"
        until(lambda: gauge(server, "ripple_requests_running") == 0)
        url = httpx.URL(server.url)
        with socket.create_connection((url.host, url.port or 80)) as slow:
            slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
            slow.sendall(b"Content-Length: 9\r\n\r\n{")
            assert b"408" in slow.recv(1 << 16).split(b"\r\n")[0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--host", "0.0.0.0"], "Other machines can connect to 0.0.0.0: set a key with --api-key"),
        (["--port", "70000"], "port must be a whole number in"),
        (["--max-length", "16", "--length", "32"], "length must be at most max_length"),
        (["--decoder", "rpss"], "Did you mean 'rps'"),
    ],
)
def test_bad_options_are_refused_before_the_model_is_loaded(words: list[str], told: str) -> None:
    command = [sys.executable, "-m", "ripple", "serve", *words]
    quiet = {key: value for key, value in os.environ.items() if key != "RIPPLE_API_KEY"}
    done = subprocess.run(command, capture_output=True, text=True, env=quiet, timeout=60)
    assert done.returncode == 2 and told in done.stderr and done.stderr.count("\n") == 1
