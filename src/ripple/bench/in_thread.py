"""A step as a server runs it: in the engine's own thread, beside an event loop that has work to do."""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ripple.engine.engine import Engine
from ripple.engine.request import Request

PAUSE_S = 0.001  # of the event loop, between two events that it encodes
EVENT = {"event": "commit", "pos": list(range(32)), "token": list(range(32)), "p": [0.5] * 32}


@contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop in a thread of its own, which encodes an event every millisecond."""
    loop = asyncio.new_event_loop()

    async def encode() -> None:
        while True:
            json.dumps(EVENT)
            await asyncio.sleep(PAUSE_S)

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    task = asyncio.run_coroutine_threadsafe(encode(), loop)
    try:
        yield loop
    finally:
        task.cancel()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        left = asyncio.all_tasks(loop)  # its cancellation takes the loop one more turn
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()


def tick_ms(engine: Engine, requests: Sequence[Request], n_first: int, seconds: float) -> float:
    """Return the median time from one tick of the engine's thread to the next, after the first so many."""
    starts: list[float] = []
    tick = engine.tick

    def timed() -> None:
        starts.append(time.perf_counter())
        tick()

    engine.tick = timed  # type: ignore[method-assign]
    try:
        with event_loop() as loop:

            def sink(_: object) -> None:
                loop.call_soon_threadsafe(json.dumps, EVENT)

            tickets = [engine.thread.submit(one, sink, text_only=True) for one in requests]
            while len(starts) < n_first or time.perf_counter() - starts[n_first - 1] < seconds:
                time.sleep(PAUSE_S * 10)
                for one in requests:
                    if one.error is not None:
                        raise one.error
            for ticket in tickets:
                ticket.cancel()
            engine.close()
    finally:
        del engine.tick
    steps = [after - before for before, after in itertools.pairwise(starts)]
    return statistics.median(steps[n_first:-1]) * 1e3
