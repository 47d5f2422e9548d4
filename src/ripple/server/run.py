"""Runs an application under uvicorn until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
import sys
from collections.abc import Callable

import uvicorn

from ripple.errors import RippleError
from ripple.server.app import create_app
from ripple.server.options import ServerOptions
from ripple.server.protocol import LONGEST_HEAD, LimitedProtocol
from ripple.server.service import Service

BACKLOG = 2048
KEEP_ALIVE_S = 30  # of an idle connection
LAST_WORDS_S = 20  # for clients to read that their request was given up


def run(service: Service, ready: Callable[[str], None]) -> None:
    """Serve until a signal: no more connections, then what is being decoded, then the end."""
    _log_lines()
    listener = listen(service.limits)
    config = uvicorn.Config(
        create_app(service), log_config=None, access_log=False, server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S, backlog=BACKLOG, ws="none", http=LimitedProtocol,
        h11_max_incomplete_event_size=LONGEST_HEAD, limit_concurrency=service.limits.most_connections,
        timeout_graceful_shutdown=math.ceil(service.limits.drain) + LAST_WORDS_S,
    )  # fmt: skip
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn sends it to itself once more at its end
    try:
        _Server(config, service, lambda: ready(f"http://{shown}:{port}")).run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, before)
        listener.close()


class _Server(uvicorn.Server):
    """A uvicorn server that says when it is ready, and gives requests up that outlast its end."""

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._service = service
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        if not self.should_exit:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let requests end for a while; whoever still waits then is told that the engine has stopped."""
        asyncio.get_running_loop().call_later(self._service.limits.drain, self._service.give_up)
        await super().shutdown(sockets)


def listen(options: ServerOptions) -> socket.socket:
    """Return a socket that listens where the options say."""
    try:
        family, *_, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise RippleError(f"Cannot listen at {options.host}: {error.strerror}.") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise RippleError(
            f"Cannot listen at {options.host}, port {options.port}: {error.strerror}."
        ) from None
    return listener


def _log_lines() -> None:
    """Write the access log, and what goes wrong, as lines on stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    for name, level in (
        ("ripple.access", logging.INFO),
        ("ripple.server", logging.INFO),
        ("uvicorn", logging.ERROR),
    ):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
