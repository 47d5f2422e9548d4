"""Answers as server-sent events, and what happens when a client leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

Wanted = TypeVar("Wanted")
DONE = b"data: [DONE]\n\n"


class ClientGone(Exception):
    """The client has closed its connection."""


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, Wanted]) -> Wanted:
    """Return what `work` comes to; if the client leaves, cancel it and raise `ClientGone`."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait({working})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def sse(value: dict[str, Any]) -> bytes:
    """Return one object as a server-sent event."""
    return b"data: " + json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n\n"


class EventStream(Response):
    """Sends server-sent events as they come, until they end or the client leaves or stops reading."""

    media_type = "text/event-stream"

    def __init__(self, parts: AsyncGenerator[bytes], close: Callable[[], None], stall_s: float) -> None:
        self._parts = parts
        self._close = close
        self._stall_s = stall_s
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            await unless_gone(receive, self._send(send))
        except (ClientGone, TimeoutError):  # the response has begun: there is nobody to tell
            scope["state"]["is_gone"] = True
        finally:
            self._close()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with aclosing(self._parts) as parts:
            async for part in parts:
                async with asyncio.timeout(self._stall_s):  # for a client that does not read
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def merged(sources: list[AsyncIterator[Wanted]]) -> AsyncIterator[tuple[int, Wanted | None]]:
    """Yield from several sources as they come, each with its number, and None when one has ended."""
    arrived: asyncio.Queue[tuple[int, Wanted | None]] = asyncio.Queue()

    async def pump(number: int, source: AsyncIterator[Wanted]) -> None:
        async for one in source:
            arrived.put_nowait((number, one))
        arrived.put_nowait((number, None))

    if len(sources) == 1:  # without a task of its own
        async for one in sources[0]:
            yield 0, one
        yield 0, None
        return
    pumps = [asyncio.ensure_future(pump(*pair)) for pair in enumerate(sources)]
    try:
        n_open = len(sources)
        while n_open:
            number, got = await arrived.get()
            n_open -= got is None
            yield number, got
    finally:
        for pumping in pumps:
            pumping.cancel()
