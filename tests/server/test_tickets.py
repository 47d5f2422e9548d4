"""Requests in an event loop: wake-ups are shared, and what waits for a slow reader is one batch."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import ripple
from ripple.errors import RippleError
from ripple.server.tickets import AsyncTicket, Mailbox

HOW: dict[str, Any] = {"length": 16, "block": 8, "decoder": "default"}


@pytest.fixture
def engine(engines: dict[str, ripple.Engine]) -> Iterator[ripple.Engine]:
    yield engines["llada"]
    engines["llada"].close()


def test_many_calls_wake_the_loop_once() -> None:
    async def count() -> tuple[list[int], int]:
        loop, called, wakes = asyncio.get_running_loop(), list[int](), 0
        inner = loop.call_soon_threadsafe

        def waking(*how: Any) -> Any:
            nonlocal wakes
            wakes += 1
            return inner(*how)

        loop.call_soon_threadsafe = waking  # type: ignore[method-assign]
        mailbox = Mailbox(loop)

        def put() -> None:
            for number in range(100):
                mailbox.put(lambda number=number: called.append(number))  # type: ignore[misc]

        put()
        await asyncio.sleep(0)
        thread = threading.Thread(target=put)
        thread.start()
        thread.join()  # the loop is busy meanwhile
        await asyncio.sleep(0)
        return called, wakes

    called, wakes = asyncio.run(count())
    assert called == [*range(100), *range(100)] and wakes == 2


def test_what_waits_for_a_reader_is_one_batch(engine: ripple.Engine) -> None:
    expected = [event.kind for event in engine.stream([1, 2], **HOW)]
    ended: list[AsyncTicket] = []

    async def read() -> list[list[str]]:
        mailbox = Mailbox(asyncio.get_running_loop())
        request = engine.prepare([1, 2], **HOW)
        ticket = AsyncTicket(request, engine.thread, mailbox, "all", ended.append)
        await ticket.finished()
        assert ended == [ticket] and ticket.result().is_full and ticket.seconds > 0
        return [[event.kind for event in batch] async for batch in ticket.events()]

    assert asyncio.run(read()) == [expected]


def test_a_cancelled_ticket_ends_and_one_that_runs_has_no_result(engine: ripple.Engine) -> None:
    async def leave() -> str | None:
        mailbox = Mailbox(asyncio.get_running_loop())
        request = engine.prepare([1, 2], decoder="default", length=400, block=8)
        ticket = AsyncTicket(request, engine.thread, mailbox, "text", lambda one: None)
        with pytest.raises(RippleError, match="has not ended"):
            ticket.result()
        ticket.cancel()
        await ticket.finished()
        return ticket.result().finish

    assert asyncio.run(leave()) == "cancelled"
