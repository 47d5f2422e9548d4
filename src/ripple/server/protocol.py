"""HTTP as uvicorn speaks it over h11; connections that bring no request or read no answer come to an end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from ripple.server.failures import Refusal

LONGEST_HEAD = 32 << 10  # bytes of a request's line and headers
HEAD_S = 30.0  # for the whole head of a request to arrive
STALL_S = 600.0  # for a client to read what waits for it


class LimitedProtocol(H11Protocol):
    """One connection; `limit_concurrency` is how many there may be at a time."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._most = self.limit_concurrency
        self.limit_concurrency = None  # uvicorn's own answer is plain text
        self._head = Countdown(self.loop, HEAD_S, lambda: self.transport.abort())
        self._stall = Countdown(self.loop, STALL_S, lambda: self.transport.abort())

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        self._head.start()
        if self._most is not None and len(self.connections) > self._most:
            retry = {"Retry-After": "1"}
            self._refuse(Refusal(503, "Too many connections.", code="too_many_connections", headers=retry))

    def data_received(self, data: bytes) -> None:
        """Take in what has come; while no request is there, the time for one runs."""
        super().data_received(data)
        if self._is_answering:
            self._head.stop()
        else:
            self._head.start()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self._head.stop()
        self._stall.stop()

    def pause_writing(self) -> None:
        """Wait for the client to read, but not for ever."""
        super().pause_writing()
        self._stall.start()

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        self._stall.stop()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that nothing came from; what it has not read by then waits a while."""
        super().timeout_keep_alive_handler()
        self._stall.start()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or too much of it, in the shape of every other failure."""
        if getattr(sys.exception(), "error_status_hint", 400) == 431:  # of h11's exception
            self._refuse(Refusal(431, f"The headers must have at most {LONGEST_HEAD} bytes."))
        else:
            self._refuse(Refusal(400, msg))

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, refusal: Refusal) -> None:
        """Answer in the application's place, unless it has begun to, and close."""
        if not (self._is_answering and self.cycle.response_started):
            told = refusal.response()
            told.headers["Connection"] = "close"
            lines = [f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}".encode()]
            lines += [name + b": " + value for name, value in told.raw_headers]
            self.transport.write(b"\r\n".join([*lines, b"", bytes(told.body)]))
        self.transport.close()


class Countdown:
    """Calls something after a while, unless it is stopped before."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, call: Callable[[], None]) -> None:
        self._loop = loop
        self._seconds = seconds
        self._call = call
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start, unless it runs."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._call)

    def stop(self) -> None:
        """Stop, if it runs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
