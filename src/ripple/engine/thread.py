"""One thread that runs an engine, for callers from any thread and from asyncio.

`submit` returns a `Ticket` at once. Events are handed over after every tick, without keeping traces. The
interpreter's switch interval is lowered while such a thread runs, so that the host's warm-up between two
forwards never keeps another thread waiting for long.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING

from ripple.engine.request import Request
from ripple.engine.result import Result
from ripple.errors import EngineStopped, QueueFull, RippleError
from ripple.trace import Event

if TYPE_CHECKING:
    from ripple.engine.engine import Engine

Sink = Callable[[list[Event]], None]  # is called in the engine's thread

QUEUE_LOOK_S = 0.02  # between two looks at a full queue from an event loop
SWITCH_INTERVAL_S = 0.0005  # of the interpreter; its default of 5 ms is as long as a cached step


class _ShortSwitches:
    """Keeps the interpreter's switch interval short while any engine's thread runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_threads = 0
        self._before = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._n_threads:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, SWITCH_INTERVAL_S))
            self._n_threads += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._n_threads -= 1
            if not self._n_threads:
                sys.setswitchinterval(self._before)


_short_switches = _ShortSwitches()


class Ticket:
    """A request that the engine's thread decodes."""

    def __init__(self, thread: EngineThread, request: Request, sink: Sink | None, text_only: bool) -> None:
        self.request = request
        self._thread = thread
        self._sink = sink
        self._events: list[Event] = []
        self._done: Future[None] = Future()
        self._error: RippleError | None = None  # of the sink
        if sink is not None:
            request.listen(self._events.append, text_only)

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the request's end and return its result, or raise its error."""
        self.wait(timeout)
        return self.request.result()

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the request's end."""
        if not self.is_done:
            self._thread.check_may_wait()
        try:
            self._done.result(timeout)
        except TimeoutError:
            raise RippleError(f"Request {self.request.number} has not ended within {timeout} s.") from None

    async def finished(self) -> None:
        """Wait for the request's end in an event loop."""
        await asyncio.shield(asyncio.wrap_future(self._done))

    def __await__(self) -> Iterator[object]:
        return self._result().__await__()

    async def _result(self) -> Result:
        try:
            await self.finished()
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self.request.result()

    @property
    def is_done(self) -> bool:
        """Whether the request has ended."""
        return self._done.done()

    def on_end(self, call: Callable[[], None]) -> None:
        """Have something called when the request has ended, in the engine's thread."""
        self._done.add_done_callback(lambda _: call())

    def cancel(self) -> None:
        """Have the request cancelled before the next tick; nothing, if it has ended."""
        if not self.is_done:
            self._thread.cancel(self)

    # -- for the engine's thread --------------------------------------------------------------------

    def flush(self) -> None:
        """Hand over what has happened since the last tick."""
        if self._sink is not None and self._events:
            events = self._events.copy()
            self._events.clear()
            try:
                self._sink(events)
            except Exception as error:  # a caller's own: it ends this request and no other
                self._sink = None
                self._error = RippleError(
                    f"What takes the events of request {self.request.number} raised {error!r}."
                )
                self._error.__cause__ = error
                self.request.cancel()

    def close(self, error: RippleError | None = None) -> None:
        """Tell whoever waits that the request has ended."""
        self.flush()
        error = error or self._error
        if error is not None:
            self._done.set_exception(error)
        else:
            self._done.set_result(None)


class EngineThread:
    """Owns an engine: whatever others want of it goes through here."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._wake = threading.Condition()
        self._inbox: deque[Ticket] = deque()
        self._cancelled: deque[Ticket] = deque()
        self._calls: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._tickets: dict[int, Ticket] = {}  # by number of the request
        self._is_closing = self._drains = False
        self.error: BaseException | None = None  # what ended the thread, if anything did
        self._thread = threading.Thread(target=self._run, name="ripple-engine", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether it is the calling thread."""
        return self._thread is threading.current_thread()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs the engine."""
        return self._thread.is_alive()

    @property
    def n_waiting(self) -> int:
        """Requests that have not been admitted yet."""
        return len(self._inbox) + self._engine.n_waiting

    def submit(self, request: Request, sink: Sink | None = None, text_only: bool = False) -> Ticket:
        """Queue a prepared request; `sink` is given its events, in the engine's thread, after every tick.

        With `text_only` these are its `text` events, which cost little.
        """
        with self._wake:
            self._check_open()
            if self.n_waiting >= self._engine.queue_limit:
                raise QueueFull(f"The queue is full: {self._engine.queue_limit} requests are waiting.")
            ticket = Ticket(self, request, sink, text_only)
            self._inbox.append(ticket)
            self._wake.notify_all()
        return ticket

    def put(self, request: Request, sink: Sink | None = None) -> Ticket:
        """Queue a prepared request, waiting for room in the queue."""
        self.check_may_wait()
        while True:
            try:
                return self.submit(request, sink)
            except QueueFull:
                with self._wake:
                    self._wake.wait(0.1)

    async def aput(self, request: Request, sink: Sink | None = None) -> Ticket:
        """Queue a prepared request as `put` does, without blocking the event loop."""
        while True:
            try:
                return self.submit(request, sink)
            except QueueFull:
                await asyncio.sleep(QUEUE_LOOK_S)

    @contextlib.contextmanager
    def tickets(self) -> Iterator[list[Ticket]]:
        """Collect the tickets of one call; whoever leaves early cancels what is left of them."""
        mine: list[Ticket] = []
        try:
            yield mine
        finally:
            for ticket in mine:
                ticket.cancel()  # nothing, if it is done

    def check_may_wait(self) -> None:
        """Raise in the engine's thread, which would wait for itself."""
        if self.is_current:
            raise RippleError("The engine's own thread cannot wait for it; use engine.thread.submit there.")

    def _check_open(self) -> None:
        if self._is_closing:
            raise EngineStopped(f"The engine has stopped{f': {self.error!r}' if self.error else ''}.")

    def cancel(self, ticket: Ticket) -> None:
        """Have a request cancelled before the next tick."""
        with self._wake:
            self._cancelled.append(ticket)
            self._wake.notify_all()

    def run(self, call: Callable[[], None]) -> None:
        """Have something done to the engine between two ticks; wait for it and raise what it raises."""
        if self.is_current:
            return call()
        done: Future[None] = Future()
        with self._wake:
            self._check_open()
            self._calls.append((call, done))
            self._wake.notify_all()
        done.result()

    def stream(self, request: Request) -> Iterator[Event]:
        """Decode a request, from the first `next` on, and yield its events; raise its error at the end."""
        events: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
        ticket = self.put(request, events.put)
        ticket.on_end(lambda: events.put([]))
        try:
            while batch := events.get():
                yield from batch
        finally:
            ticket.cancel()
        ticket.result()

    async def astream(self, request: Request) -> AsyncIterator[Event]:
        """Decode a request and yield its events in an event loop; raise its error at the end."""
        loop, events = asyncio.get_running_loop(), asyncio.Queue[list[Event]]()
        ticket = await self.aput(request, lambda batch: _call(loop, events, batch))
        ticket.on_end(lambda: _call(loop, events, []))
        try:
            while batch := await events.get():
                for event in batch:
                    yield event
        finally:
            ticket.cancel()
        ticket.result()

    def close(self, drain: bool = True, timeout: float | None = None) -> None:
        """Take no more requests and end the thread; requests are decoded to their end, or cancelled."""
        with self._wake:
            self._is_closing, self._drains = True, drain
            self._wake.notify_all()
        if not self.is_current:
            self._thread.join(timeout)

    # -- in the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with _short_switches:
                while self._take_orders():
                    self._engine.tick()
                    self._publish()
        except BaseException as error:
            self.error = error
        finally:
            self._leave()

    def _take_orders(self) -> bool:
        """Wait for work and take in what callers want; return False when the thread is to end."""
        with self._wake:
            while not (self._inbox or self._cancelled or self._calls or self._tickets or self._is_closing):
                self._wake.wait()
            while self._inbox:  # within the lock, so that all who wait are counted at every moment
                self._enqueue(self._inbox.popleft())
            cancelled, calls = list(self._cancelled), list(self._calls)
            self._cancelled.clear()
            self._calls.clear()
        for call, done in calls:
            try:
                done.set_result(call())
            except BaseException as error:  # a SystemExit, too, is its caller's
                done.set_exception(error)
        if self._is_closing and not self._drains:
            cancelled = list(self._tickets.values())
        for ticket in cancelled:
            ticket.request.cancel()
        return bool(self._tickets) or not self._is_closing

    def _enqueue(self, ticket: Ticket) -> None:
        try:
            self._engine.enqueue(ticket.request)
        except RippleError as error:  # it is queued already: an error of this ticket alone
            ticket.close(error)
        else:
            self._tickets[ticket.request.number] = ticket

    def _publish(self) -> None:
        """Hand over events, and tell whoever waits for a request that has ended."""
        ended = []
        for number, ticket in self._tickets.items():
            if ticket.request.finish is not None:
                ended.append(number)
                ticket.close()
            else:
                ticket.flush()
        if ended:
            for number in ended:
                del self._tickets[number]
            with self._wake:
                self._wake.notify_all()  # there is room in the queue

    def _leave(self) -> None:
        """Let nobody wait for a thread that has ended."""
        with self._wake:
            self._is_closing = True
            left, calls = [*self._tickets.values(), *self._inbox], list(self._calls)
            self._inbox.clear()
            self._calls.clear()
        error = EngineStopped(f"The engine has stopped: {self.error!r}.")
        error.__cause__ = self.error
        for _, done in calls:
            done.set_exception(error)
        for ticket in left:
            with contextlib.suppress(Exception):
                ticket.request.cancel()
                ticket.close(error)


def _call(loop: asyncio.AbstractEventLoop, events: asyncio.Queue[list[Event]], batch: list[Event]) -> None:
    """Put events into an event loop's queue, from another thread; a loop that is closed gets none."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(events.put_nowait, batch)
