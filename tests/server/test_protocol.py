"""Connections that bring no request, too long a one or none at all, and those that read no answer."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn

from ripple.server import protocol
from ripple.server.options import ServerOptions
from ripple.server.protocol import LONGEST_HEAD, LimitedProtocol
from ripple.server.run import listen
from tests.server.conftest import until

LARGE = 64 << 20  # bytes of an answer: more than the system takes in on behalf of a client that does not read
HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"


async def application(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
    """Answer the paths /large, and any other one."""
    body = b"x" * LARGE if scope["path"] == "/large" else b"ok"
    length = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": body[:-1], "more_body": True})
    await send({"type": "http.response.body", "body": body[-1:], "more_body": False})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[uvicorn.Server]:
    """A server in this process that loses its patience soon."""
    monkeypatch.setattr(protocol, "HEAD_S", 0.5)
    monkeypatch.setattr(protocol, "STALL_S", 0.5)
    config = uvicorn.Config(
        application, http=LimitedProtocol, h11_max_incomplete_event_size=LONGEST_HEAD, limit_concurrency=4,
        timeout_keep_alive=1, lifespan="off", log_level="critical",
    )  # fmt: skip
    one = uvicorn.Server(config)
    with listen(ServerOptions(port=0)) as listener:
        one.address = listener.getsockname()  # type: ignore[attr-defined]
        thread = threading.Thread(target=one.run, kwargs={"sockets": [listener]})
        thread.start()
        until(lambda: one.started)
        yield one
        one.should_exit = True
        thread.join()


def connected(server: uvicorn.Server, sent: bytes = b"") -> socket.socket:
    client = socket.create_connection(server.address)  # type: ignore[attr-defined]
    client.settimeout(10)
    client.sendall(sent)
    return client


def closed_after(client: socket.socket) -> float:
    """Seconds until the other side closes the connection."""
    start = time.monotonic()
    try:
        while client.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return time.monotonic() - start


def answer(client: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and what has come of the body."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += client.recv(1 << 16)
    head, _, body = got.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    while len(body) < int(headers["content-length"]):
        body += client.recv(1 << 16)
    return int(status.split()[1]), headers, body


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"\r\n", HEAD + b"\r\n" + HEAD])
def test_a_connection_that_brings_no_request_is_closed(server: uvicorn.Server, sent: bytes) -> None:
    with connected(server, sent) as client:
        assert 0.3 < closed_after(client) < 5


def test_a_head_that_comes_in_drops_gets_no_more_time(server: uvicorn.Server) -> None:
    with connected(server) as client:
        start = time.monotonic()
        with pytest.raises(OSError):
            for number in range(200):
                client.sendall(HEAD if number == 0 else b"X: a\r\n")
                time.sleep(0.05)
        assert time.monotonic() - start < 5


def test_headers_without_end_are_a_431(server: uvicorn.Server) -> None:
    with connected(server, HEAD + b"X: " + b"a" * (LONGEST_HEAD - 60) + b"\r\n\r\n") as client:
        assert answer(client)[0] == 200
    with connected(server, HEAD + b"X: " + b"a" * LONGEST_HEAD) as client:
        status, headers, body = answer(client)
        assert status == 431 and headers["connection"] == "close"
        assert json.loads(body)["error"]["code"] == "headers_too_large"
        assert closed_after(client) < 5


def test_what_is_no_http_is_a_400_in_the_shape_of_all_others(server: uvicorn.Server) -> None:
    with connected(server, b"\x00\x01 nonsense\r\n\r\n") as client:
        status, headers, body = answer(client)
        assert status == 400 and headers["content-type"] == "application/json"
        assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}


def test_there_are_only_so_many_connections(server: uvicorn.Server) -> None:
    clients = [connected(server, HEAD + b"\r\n") for _ in range(4)]
    assert [answer(client)[0] for client in clients] == [200] * 4
    with connected(server, HEAD + b"\r\n") as one_more:
        status, headers, body = answer(one_more)
        assert status == 503 and headers["retry-after"] == "1"
        assert json.loads(body)["error"]["code"] == "too_many_connections"
    clients.pop().close()
    until(lambda: len(server.server_state.connections) < 4)
    with connected(server, HEAD + b"\r\n") as next_one:
        assert answer(next_one)[0] == 200
    for client in clients:
        client.close()


def test_a_client_that_reads_nothing_is_left(server: uvicorn.Server) -> None:
    with connected(server, HEAD.replace(b"/", b"/large", 1) + b"\r\n"):
        until(lambda: server.server_state.connections, 5)
        until(lambda: not server.server_state.connections, 10)


def test_a_server_allows_more_connections_than_requests() -> None:
    assert ServerOptions(max_batch=4, queue=8).most_connections == 2 * 12 + 256
    assert ServerOptions(max_connections=7).most_connections == 7
