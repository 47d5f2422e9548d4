"""Requests as the event loop sees them: what happens in the engine's thread arrives here in batches."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from ripple.engine.request import Request
from ripple.engine.result import Result
from ripple.trace import Event

if TYPE_CHECKING:
    from ripple.engine.thread import EngineThread


class Mailbox:
    """Carries calls from the engine's thread into an event loop; many of them wake it once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()
        self._is_coming = False

    def put(self, call: Callable[[], None]) -> None:
        """Have something called in the event loop; may be used from any thread."""
        self._calls.append(call)
        if not self._is_coming:
            self._is_coming = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        self._is_coming = False  # first: whatever is put from here on wakes the loop again
        while self._calls:
            self._calls.popleft()()


class AsyncTicket:
    """A request that is decoded for a client. It belongs to one event loop."""

    def __init__(
        self, request: Request, thread: EngineThread, mailbox: Mailbox, events: str | None,
        ended: Callable[[AsyncTicket], None],
    ) -> None:  # fmt: skip
        """Queue the request; `events` is None, "text", or "all"; `ended` is called when it has ended."""
        self.request = request
        self.start = time.perf_counter()
        self.first_text_s: float | None = None  # after the start
        self.seconds = 0.0
        self._news = asyncio.Event()
        self._events: list[Event] = []
        self._is_done = False
        self._ended = ended
        sink = (lambda batch: mailbox.put(lambda: self._take(batch))) if events else None
        self._ticket = thread.submit(request, sink, text_only=events == "text")
        self._ticket.on_end(lambda: mailbox.put(self._end))

    def _take(self, batch: list[Event]) -> None:
        if self.first_text_s is None and any(event.kind == "text" for event in batch):
            self.first_text_s = time.perf_counter() - self.start
        self._events += batch
        self._news.set()

    def _end(self) -> None:
        self._is_done = True
        self.seconds = time.perf_counter() - self.start
        self._news.set()
        self._ended(self)

    @property
    def is_done(self) -> bool:
        """Whether the request has ended."""
        return self._is_done

    async def events(self) -> AsyncIterator[list[Event]]:
        """Yield what has happened since the last time, however much it is, until the request has ended."""
        while self._events or not self._is_done:
            if not self._events:
                self._news.clear()
                await self._news.wait()
            batch, self._events = self._events, []
            if batch:
                yield batch

    async def finished(self) -> None:
        """Wait for the request's end."""
        while not self._is_done:
            self._news.clear()
            await self._news.wait()

    def result(self) -> Result:
        """Return the result, or raise the request's error or the engine's."""
        self._ticket.wait(0)
        return self.request.result()

    def cancel(self) -> None:
        """Have the request cancelled before the next tick; nothing, if it has ended."""
        self._ticket.cancel()
