"""An engine in a thread of its own: callers from any thread and from asyncio."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ripple
from ripple.canvas import Canvas
from ripple.decoders.base import Conversation
from ripple.engine.engine import Engine
from ripple.engine.thread import EngineThread, Ticket

HOW: dict[str, Any] = {"decoder": "rps", "length": 24, "block": 8, "cache": "dual"}
PROMPTS = [[3, 4, 5], [9, 8, 7, 6], [1], [2, 2, 2, 2, 2, 2]]


@pytest.fixture
def engine(folders: dict[str, Path], family: str) -> Iterator[ripple.Engine]:
    """An engine of its own, whose thread ends with the test."""
    engine = ripple.load(folders[family], device="cpu", dtype="float32", queue_limit=8)
    yield engine
    engine.close(drain=False)


def test_many_threads_get_what_each_would_get_alone(engine: ripple.Engine) -> None:
    alone = [engine.generate(prompt, **HOW).token_ids for prompt in PROMPTS]
    _ = engine.thread
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: engine.generate(PROMPTS[i % 4], **HOW), range(40)))
    assert [result.token_ids for result in results] == [alone[i % 4] for i in range(40)]
    assert engine.n_live == engine.n_waiting == 0 and engine._admission.n_held == 0


def test_callers_that_come_first_at_the_same_time_share_one_thread(engine: ripple.Engine) -> None:
    barrier = threading.Barrier(8)

    def first(i: int) -> EngineThread:
        barrier.wait()
        thread = engine.thread
        thread.submit(engine.prepare(PROMPTS[i % 4], **HOW)).result()
        return thread

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(first, range(8)))) == 1


def test_a_list_longer_than_the_queue_goes_through_the_thread(engine: ripple.Engine) -> None:
    alone = engine.generate(PROMPTS * 6, **HOW)
    _ = engine.thread
    assert [r.token_ids for r in engine.generate(PROMPTS * 6, **HOW)] == [r.token_ids for r in alone]


def test_a_list_longer_than_the_queue_can_be_awaited(engine: ripple.Engine) -> None:
    alone = engine.generate(PROMPTS * 6, **HOW)
    results = asyncio.run(engine.agenerate(PROMPTS * 6, **HOW))
    assert [result.token_ids for result in results] == [result.token_ids for result in alone]


def test_a_call_that_is_interrupted_cancels_what_it_has_queued(
    engine: ripple.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread, slow = engine.thread, {"decoder": "default", "length": 800, "block": 8}

    def interrupted(ticket: Ticket, timeout: float | None = None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Ticket, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.generate([[1], [2]], **slow)
    wait_until(lambda: engine.n_live == thread.n_waiting == 0)
    monkeypatch.undo()

    async def timed_out() -> None:  # while it waits for room in the queue
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(engine.agenerate([[1]] * 80, **slow), 0.2)

    asyncio.run(timed_out())
    wait_until(lambda: engine.n_live == thread.n_waiting == 0)


def test_asyncio_awaits_and_streams(engine: ripple.Engine) -> None:
    alone = [engine.generate(prompt, **HOW).token_ids for prompt in PROMPTS]

    async def everything() -> tuple[list[Any], list[ripple.Event]]:
        results = await asyncio.gather(*(engine.agenerate(prompt, **HOW) for prompt in PROMPTS))
        events = [event async for event in engine.astream(PROMPTS[0], **HOW)]
        return results, events

    results, events = asyncio.run(everything())
    assert [result.token_ids for result in results] == alone
    assert events[0].kind == "start" and events[-1].kind == "end" and events[-1].data["token"] == alone[0]


def test_a_stream_yields_the_same_events_with_and_without_the_thread(engine: ripple.Engine) -> None:
    def told(events: list[ripple.Event]) -> list[Any]:
        return [(e.kind, {k: v for k, v in e.data.items() if k != "seconds"}) for e in events]

    direct = told(list(engine.stream(PROMPTS[1], **HOW)))
    _ = engine.thread
    assert told(list(engine.stream(PROMPTS[1], **HOW))) == direct


def test_no_trace_is_kept_for_a_stream(engine: ripple.Engine) -> None:
    batches: list[int] = []
    ticket = engine.thread.submit(
        engine.prepare(PROMPTS[0], **HOW), lambda events: batches.append(len(events))
    )
    result = ticket.result(timeout=30)
    assert result.trace is None and ticket.request._events is None and ticket._events == []
    assert sum(batches) > result.nfe and len(batches) >= result.nfe


def test_a_sink_for_text_gets_text_alone() -> None:
    engine = ripple.load("tiny-llada")
    how: dict[str, Any] = {"length": 24, "decoder": "confidence"}
    everything = [event for event in engine.stream("Question: 1 + 1?", **how) if event.kind == "text"]
    batches: list[list[ripple.Event]] = []
    request = engine.prepare("Question: 1 + 1?", **how)
    result = engine.thread.submit(request, batches.append, text_only=True).result(timeout=30)
    engine.close()
    told = [event for batch in batches for event in batch]
    assert [event.data for event in told] == [event.data for event in everything] and all(batches)
    assert "".join(event.data["text"] for event in told) == result.text and not request.listens


@pytest.mark.parametrize("kind", ["forward", "end"])
def test_a_sink_that_raises_ends_its_request_alone(engine: ripple.Engine, kind: str) -> None:
    def sink(events: list[ripple.Event]) -> None:
        if any(event.kind == kind for event in events):
            raise ValueError("full")

    alone = engine.generate(PROMPTS[1], **HOW).token_ids
    failing = engine.thread.submit(engine.prepare(PROMPTS[0], **HOW), sink)
    other = engine.thread.submit(engine.prepare(PROMPTS[1], **HOW))
    with pytest.raises(ripple.RippleError, match=r"What takes the events of request \d+ raised ValueError"):
        failing.result(timeout=30)
    assert other.result(timeout=30).token_ids == alone and engine.n_live == 0


def test_a_dropped_stream_cancels_its_request(engine: ripple.Engine) -> None:
    slow = {"decoder": "default", "length": 400, "block": 8}

    async def leave() -> None:
        async for event in engine.astream(PROMPTS[0], **slow):
            if event.kind == "commit":
                break

    asyncio.run(leave())
    stream = engine.stream(PROMPTS[0], **slow)
    next(stream)
    stream.close()
    wait_until(lambda: engine.n_live == 0 and engine._admission.n_held == 0)


def test_a_cancelled_task_cancels_its_request(engine: ripple.Engine) -> None:
    async def timed_out() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(engine.agenerate([1, 2], decoder="default", length=800, block=8), 0.05)

    asyncio.run(timed_out())
    wait_until(lambda: engine.n_live == 0)


def test_one_failure_is_told_to_its_caller_alone(engine: ripple.Engine) -> None:
    class Broken(ripple.Confidence):
        def decode(self, canvas: Canvas) -> Conversation:
            raise LookupError("broken")
            yield

    thread = engine.thread
    good = thread.submit(engine.prepare(PROMPTS[0], **HOW))
    bad = thread.submit(engine.prepare(PROMPTS[0], **HOW | {"decoder": Broken()}))
    with pytest.raises(ripple.RequestError, match="LookupError: broken"):
        bad.result(timeout=30)
    assert good.result(timeout=30).is_full

    async def streamed() -> None:
        with pytest.raises(ripple.RequestError, match="LookupError: broken"):
            async for _ in engine.astream(PROMPTS[0], **HOW | {"decoder": Broken()}):
                pass

    asyncio.run(streamed())


def test_a_full_queue_is_said_at_once(engine: ripple.Engine) -> None:
    gate = threading.Event()
    request = engine.prepare(PROMPTS[0], **HOW)
    request.listen(lambda event: gate.wait(30) and None)  # holds the engine's thread up
    thread = engine.thread
    tickets = [thread.submit(engine.prepare([5], **HOW)) for _ in range(1)]
    tickets += [thread.submit(request, lambda events: gate.wait(30) and None)]
    wait_until(lambda: engine.n_live == 2 or engine.n_live == 1)
    with pytest.raises(ripple.QueueFull, match="8 requests are waiting"):
        for _ in range(30):
            tickets.append(thread.submit(engine.prepare([5], **HOW)))
    gate.set()
    assert all(ticket.result(timeout=30).is_full for ticket in tickets)


def test_closing_drains_or_cancels(engine: ripple.Engine) -> None:
    thread = engine.thread
    tickets = [thread.submit(engine.prepare(prompt, **HOW)) for prompt in PROMPTS]
    engine.close()
    assert all(ticket.result().is_full for ticket in tickets) and not thread.is_alive
    with pytest.raises(ripple.EngineStopped, match="has stopped"):
        thread.submit(engine.prepare([1], **HOW))
    slow = [
        engine.thread.submit(engine.prepare([1], decoder="default", length=800, block=8)) for _ in range(3)
    ]
    engine.close(drain=False)
    assert {ticket.result().finish for ticket in slow} == {"cancelled"}
    assert engine.generate(PROMPTS[0], **HOW).is_full, "the engine is its caller's again"


@pytest.mark.parametrize("method", ["generate", "stream"])
def test_the_engines_thread_does_not_wait_for_itself(engine: ripple.Engine, method: str) -> None:
    """A sink is called in it: more can be queued there, but not waited for."""
    later: list[Ticket] = []

    def chaining(events: Any) -> None:
        if not later:
            later.append(engine.thread.submit(engine.prepare([1], **HOW)))
            list(getattr(engine, method)([1], **HOW))

    bad = engine.thread.submit(engine.prepare([2], **HOW), chaining)
    with pytest.raises(ripple.RippleError, match="own thread cannot wait for it"):
        bad.result(timeout=30)
    assert later[0].result(timeout=30).is_full


def test_a_thread_can_be_started_once_what_was_queued_is_cancelled(engine: ripple.Engine) -> None:
    request = engine.submit([1], **HOW)
    with pytest.raises(ripple.RippleError, match="The engine is decoding"):
        engine.thread.submit(engine.prepare([2], **HOW))
    request.cancel()
    assert engine.thread.submit(engine.prepare([2], **HOW)).result(timeout=30).is_full


def test_a_crash_of_the_engine_is_told_to_everybody(
    engine: ripple.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = engine.thread

    def crash() -> None:
        raise MemoryError("the host is out of memory")

    monkeypatch.setattr(engine, "tick", crash)
    ticket = thread.submit(engine.prepare([1], **HOW))
    with pytest.raises(ripple.EngineStopped, match="out of memory"):
        ticket.result(timeout=30)
    with pytest.raises(ripple.EngineStopped, match="out of memory"):
        engine.thread.submit(engine.prepare([1], **HOW))
    assert isinstance(thread.error, MemoryError)


def test_only_the_thread_runs_its_engine(engine: ripple.Engine) -> None:
    request = engine.submit([1], **HOW)
    with pytest.raises(ripple.RippleError, match="The engine is decoding"):
        _ = engine.thread
    request.cancel()
    engine.tick()
    _ = engine.thread
    with pytest.raises(ripple.RippleError, match="run by its own thread"):
        engine.tick()
    with pytest.raises(ripple.RippleError, match="run by its own thread"):
        engine.submit([1], **HOW)


def test_the_interpreters_switch_interval_is_lowered_while_a_thread_runs(engine: ripple.Engine) -> None:
    before = sys.getswitchinterval()
    engine.thread.submit(engine.prepare([1], **HOW)).result(timeout=30)
    assert sys.getswitchinterval() <= 0.0005
    engine.close()
    assert sys.getswitchinterval() == before


def test_the_interval_comes_back_when_the_last_of_several_threads_ends(
    engines: dict[str, ripple.Engine],
) -> None:
    before = sys.getswitchinterval()
    one, two = (Engine(engines["llada"].model) for _ in "12")
    for engine in (one, two):
        engine.thread.submit(engine.prepare([1], **HOW)).result(timeout=30)
    one.close()
    assert sys.getswitchinterval() <= 0.0005
    two.close()
    assert sys.getswitchinterval() == before


def test_a_stream_that_is_never_begun_decodes_nothing(engine: ripple.Engine) -> None:
    thread = engine.thread
    streams = [engine.stream(PROMPTS[0], **HOW) for _ in range(20)]  # more than the queue holds
    assert thread.n_waiting == engine.n_live == 0
    assert [sum(event.kind == "end" for event in stream) for stream in streams] == [1] * 20


def test_room_is_reserved_between_two_ticks(engine: ripple.Engine) -> None:
    how = {"decoder": "default", "length": 64, "block": 8, "cache": "dkv"}
    alone = engine.generate([3, 4, 5], **how).token_ids
    ticket = engine.thread.submit(engine.prepare([3, 4, 5], **how))
    n = 0
    while not ticket.is_done:
        engine.reserve(2 + n % 10, 100 + 60 * (n % 9))
        n += 1
    assert n > 3 and ticket.result().token_ids == alone
    engine.close()
    with pytest.raises(ripple.RippleError, match="must be a whole number"):
        engine.reserve(0, 1)


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_what_is_run_between_two_ticks_raises_in_its_callers_thread(
    engine: ripple.Engine, error: type[BaseException]
) -> None:
    def broken() -> None:
        raise error

    with pytest.raises(error):
        engine.thread.run(broken)
    assert engine.generate([1], **HOW).is_full
    thread = engine.thread
    engine.close()
    with pytest.raises(ripple.EngineStopped):
        thread.run(lambda: None)


def test_a_request_of_another_model_is_refused(
    engine: ripple.Engine, engines: dict[str, ripple.Engine]
) -> None:
    request = engines["llada"].prepare([1], **HOW)
    with pytest.raises(ripple.RippleError, match="prepared by an engine with another model"):
        engine.thread.submit(request).result(timeout=30)


def wait_until(condition: Any, seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.005)
