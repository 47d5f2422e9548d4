"""Requests to the server: to its application, and as bytes on a connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import ripple
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.options import Options
from ripple.server.options import ServerOptions
from tools.mutations import damaged_bytes, damaged_json, damaged_text
from tools.surfaces.base import SMALL, Json, Surface, Unclean, check_sentence

CHAT = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "2"}]}]
OURS = {"decoder": "rps:lam=0.2", "cache": "dual", "block": 4, "trace": True}
BODIES: tuple[tuple[str, Json], ...] = (
    ("/v1/completions", {"prompt": "1 + 1 =", "max_tokens": 4}),
    ("/v1/completions", {"prompt": ["a", "b"], "n": 2, "seed": 1, "temperature": 0.5, "logprobs": 1}),
    ("/v1/completions", {"prompt": "a", "echo": True, "suffix": "", "logit_bias": {}, "best_of": 1}),
    ("/v1/completions", {"prompt": [1, 2, 3], "stop": ["a"], "ripple": OURS, "model": "m", "user": "u"}),
    ("/v1/completions", {"prompt": [[1], [2]], "stream": True, "stream_options": {"include_usage": True}}),
    ("/v1/completions", {"prompt": "a", "stream": True, "ripple": {"stream": "canvas", "length": 4}}),
    ("/v1/chat/completions", {"messages": CHAT, "max_completion_tokens": 4, "logprobs": True}),
    ("/v1/chat/completions", {"messages": CHAT, "stream": True, "response_format": {"type": "text"}}),
)  # fmt: skip
PATHS = (
    "/v1/completions", "/v1/chat/completions", "/v1/models", "/v1/models/m", "/v1/models/x", "/health",
    "/metrics", "/version", "/docs", "/", "/openapi.json", "/static/x", "/v1/nothing",
)  # fmt: skip
HEADERS = (
    "content-type",
    "content-length",
    "authorization",
    "x-request-id",
    "accept",
    "host",
    "origin",
    "range",
)
KEY = "key"
SERVED = ("--length", "4", "--max-length", "4", "--max-batch", "4", "--queue", "64", "--max-body", "30000")


class Http(Surface):
    """Requests to the application, as the ASGI server hands them over: method, path, headers, body."""

    name, n = "http", 117_000

    def __init__(self, folder: Path) -> None:
        from ripple.server.app import create_app
        from ripple.server.service import Service

        super().__init__(folder)
        write_random_checkpoint(folder / "m", max_positions=256, **SMALL)
        limits = ServerOptions(max_length=4, max_batch=4, queue=64, max_body=30_000, api_key=KEY)
        engine = ripple.load(folder / "m", device="cpu")
        engine.max_batch, engine.queue_limit = limits.max_batch, limits.queue
        self._service = Service(engine, "m", Options("default", 4, stop_at_end=True), limits)
        self._app = create_app(self._service)
        self._loop = asyncio.new_event_loop()
        self._values = [body for _, body in BODIES]

    def close(self) -> None:
        self._service.close()
        self._loop.close()

    def case(self, rng: random.Random) -> tuple[str, str, list[tuple[bytes, bytes]], bytes]:
        path, value = rng.choice(BODIES)
        method, body = "POST", damaged_json(value, rng, self._values)
        headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}", "host": "h"}
        if rng.random() < 0.15:
            path = rng.choice((*PATHS, damaged_text(path, rng)))
            method = rng.choice(("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "X"))
        if rng.random() < 0.15:
            name = rng.choice(HEADERS)
            headers[name] = damaged_text(headers.get(name, rng.choice(("5", "Basic a2V5", "a", "*/*"))), rng)
        if rng.random() < 0.1:
            body = damaged_bytes(body, rng)
        sent = [(name.encode(), text.encode("latin-1", "replace")) for name, text in headers.items()]
        return method, path, sent, body

    def feed(self, case: tuple[str, str, list[tuple[bytes, bytes]], bytes]) -> bool:
        status, body = self._loop.run_until_complete(asyncio.wait_for(self._answer(*case), 30))
        is_page = not case[1].startswith("/v1")
        return check_answer(status, body, is_page or case[0] == "HEAD")

    async def _answer(
        self, method: str, path: str, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> tuple[int, bytes]:
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "path": path, "headers": headers,
            "raw_path": path.encode("utf-8", "surrogateescape"), "query_string": b"", "scheme": "http",
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "asgi": {"version": "3.0"},
            "root_path": "",
        }  # fmt: skip
        said: list[Any] = []
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if waiting:
                return waiting.pop()
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            said.append(message)

        await self._app(scope, receive, send)
        if not said:
            raise Unclean("no answer")
        return said[0]["status"], b"".join(message.get("body", b"") for message in said[1:])


def check_answer(status: int, body: bytes, may_be_text: bool = False) -> bool:
    """Return whether a request was accepted; raise unless its answer is one that is promised.

    OpenAI's shape is promised below /v1; a page answers a broken `Range` in plain text.
    """
    if status < 400:
        if b'"error": {' in body[-1000:]:
            raise Unclean(f"{status}, and in the answer: {body[-300:]!r}")
        return True
    if status >= 500:
        raise Unclean(f"{status}: {body[:300]!r}")
    if body.startswith(b"{") or not may_be_text:
        told = json.loads(body)["error"]
        if set(told) != {"message", "type", "param", "code"}:
            raise Unclean(f"{status}: {body[:300]!r}")
        check_sentence(told["message"])
    return False


HEALTH = b"GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"


class Socket(Surface):
    """Bytes on a connection to `ripple serve`, a process of its own."""

    name, n = "socket", 3_000

    def __init__(self, folder: Path) -> None:
        from ripple.bench.server_process import ServerProcess

        super().__init__(folder)
        write_random_checkpoint(folder / "m", max_positions=256, **SMALL)
        self._server = ServerProcess("--model", str(folder / "m"), "--device", "cpu", "--name", "m", *SERVED)
        parts = urlsplit(self._server.url)
        self._place = (str(parts.hostname), int(parts.port or 0))

    def close(self) -> None:
        self._server.process.kill()
        self._server.process.wait()

    def case(self, rng: random.Random) -> bytes:
        path, value = rng.choice(BODIES)
        body = json.dumps(value).encode() if rng.random() < 0.7 else damaged_json(value, rng)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        chunked = f"Transfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
        data = head.encode() + body
        if rng.random() < 0.2:
            data = head.partition("Content-Length")[0].encode() + chunked
        return damaged_bytes(data, rng, [data])

    def feed(self, case: bytes) -> bool:
        said = self._exchange(case)
        if not self._exchange(HEALTH, 30).startswith(b"HTTP/1.1 200 "):
            raise Unclean("the server is not well afterwards")
        if not said:
            return False  # closed, as where a body is cut off
        statuses = [int(part[:3]) for part in said.split(b"HTTP/1.1 ")[1:] if part[:3].isdigit()]
        if not statuses or max(statuses) >= 500:
            raise Unclean(f"answered {said[:300]!r}")
        return max(statuses) < 400

    def _exchange(self, data: bytes, patience_s: float = 0.2) -> bytes:
        """Send bytes and return what comes back; a server that waits for more of them is left waiting."""
        with socket.create_connection(self._place, timeout=patience_s) as connection:
            said = b""
            with contextlib.suppress(ConnectionError, TimeoutError):
                connection.sendall(data)
                while part := connection.recv(1 << 16):
                    said += part
            return said
