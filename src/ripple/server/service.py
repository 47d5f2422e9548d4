"""What stands between HTTP and the engine: it checks, queues and counts the requests of one model."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from ripple.engine.engine import Engine
from ripple.engine.request import Request
from ripple.engine.thread import EngineThread
from ripple.errors import EngineStopped, QueueFull, RippleError
from ripple.options import LENGTH, Options
from ripple.server.bodies import Parsed, parsed
from ripple.server.failures import Refusal, refusal
from ripple.server.memory import GiveBack
from ripple.server.metrics import Metrics
from ripple.server.options import ServerOptions
from ripple.server.preparation import Preparation
from ripple.server.tickets import AsyncTicket, Mailbox

LARGE_BODY = 20_000  # bytes; larger ones are parsed and tokenised beside the event loop
RESERVED_PROMPT = 1024  # tokens; the keys of longer ones have to be moved once
LAST_TICK_S = 60.0  # of the engine, when the server ends

log = logging.getLogger("ripple.server")


class Service:
    """One model, its engine in a thread, and the options of requests that do not say otherwise."""

    def __init__(
        self, engine: Engine, name: str, options: Options | None = None, limits: ServerOptions | None = None
    ) -> None:
        self.engine = engine
        self.name = name
        self.options = options or Options(stop_at_end=True)
        self.limits = limits or ServerOptions()
        self.is_closing = False
        self._thread: EngineThread = engine.thread
        self._mailbox: Mailbox | None = None
        self._preparation = Preparation(engine, name, self.options, self.limits)
        # One large body at a time: all others must not wait long.
        self._preparer = ThreadPoolExecutor(1, "ripple-preparer")
        self._n_preparing = 0  # large bodies, waiting ones among them
        self._recent_s: deque[float] = deque([1.0], maxlen=64)  # how long the last requests took
        self.metrics = Metrics(self)
        self._give_back = GiveBack(lambda: bool(self.n_running or self.n_waiting))

    @property
    def is_well(self) -> bool:
        """Whether requests are taken and decoded."""
        return self._thread.is_alive and not self.is_closing

    @property
    def n_running(self) -> int:
        """Requests that are decoded now."""
        return self.engine.n_live

    @property
    def n_waiting(self) -> int:
        """Requests that wait for their turn."""
        return self._thread.n_waiting + self._n_preparing

    @property
    def retry_s(self) -> int:
        """Seconds after which it is worth to try again: the mean time of the last requests."""
        return max(1, math.ceil(sum(self._recent_s) / len(self._recent_s)))

    def refuse(self, error: Exception) -> Refusal:
        """Return what a client is told of an error; it is counted, and logged where it is our own."""
        told = refusal(error, self.retry_s)
        self.metrics.refused(told.status)
        if told.status == 500:
            log.error("A request failed.", exc_info=error)
        return told

    async def metrics_text(self) -> bytes:
        """Return what `/metrics` tells."""
        return self.metrics.text()

    # -- what a body asks for -----------------------------------------------------------------------

    async def prepare(self, kind: type[Parsed], raw: bytes) -> tuple[Parsed, list[Request]]:
        """Return a body and its requests; a large body waits for its turn beside the event loop.

        Whoever cancels this gives up the turn; what is under way ends before the next prompt.
        """
        if len(raw) <= LARGE_BODY:
            return self._prepared(kind, raw, lambda: True)
        if self.n_waiting >= self.engine.queue_limit:
            raise QueueFull(f"The queue is full: {self.engine.queue_limit} requests are waiting.")
        given_up = threading.Event()
        work = partial(self._prepared, kind, raw, lambda: not given_up.is_set())
        self._n_preparing += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._preparer, work)
        finally:
            given_up.set()
            self._n_preparing -= 1
            self._give_back.soon()

    def _prepared(
        self, kind: type[Parsed], raw: bytes, is_wanted: Callable[[], bool]
    ) -> tuple[Parsed, list[Request]]:
        body = parsed(kind, raw, self.engine.queue_limit)
        return body, self._preparation.requests(body, is_wanted)

    def check_model(self, name: str) -> None:
        """Refuse a model that is not served here."""
        self._preparation.check_model(name)

    # -- decoding -----------------------------------------------------------------------------------

    def submit(self, requests: Sequence[Request], events: str | None = None) -> list[AsyncTicket]:
        """Queue requests, all or none of them; `events` is None, "text" or "all"."""
        if not self.is_well:
            raise EngineStopped("The engine has stopped.")
        if self._mailbox is None:
            self._mailbox = Mailbox(asyncio.get_running_loop())
        tickets: list[AsyncTicket] = []
        try:
            for request in requests:
                tickets.append(AsyncTicket(request, self._thread, self._mailbox, events, self._note))
        except RippleError:
            self.cancel(tickets)
            raise
        return tickets

    def cancel(self, tickets: Sequence[AsyncTicket]) -> None:
        """Have requests cancelled whose client has gone."""
        for ticket in tickets:
            ticket.cancel()

    def _note(self, ticket: AsyncTicket) -> None:
        """Take note of a request that has ended."""
        self._recent_s.append(ticket.seconds)
        self.metrics.ended(ticket.request, ticket.seconds, ticket.first_text_s)
        self._give_back.soon()

    def warm_up(self) -> None:
        """Do what is done once, so that no client waits for it: room for keys, and one short request."""
        self.reserve()
        if self.options.lookahead_budget is not None:
            self._thread.run(self._measure)
        prompt = [0 if self.engine.model.config.mask_id else 1]
        options = replace(self.options, length=self.options.block_size, trace=False)
        self._thread.submit(self.engine.prepare(prompt, options)).result()

    def _measure(self) -> None:
        """Measure what a forward costs, of which a lookahead budget is a share."""
        _ = self.engine.step_curve

    def reserve(self) -> None:
        """Make room for the keys of a whole batch where graphs are captured: they are bound to its place."""
        model = self.engine.model
        if model.has_static_shapes and self.options.policy.name != "none":
            grows = model.config.attention_block is not None
            length = self.options.length or self.limits.max_length or (math.inf if grows else LENGTH)
            n_positions = int(min(model.config.max_positions, RESERVED_PROMPT + length))
            self.engine.reserve(self.limits.max_batch, n_positions)

    def give_up(self) -> None:
        """Take no more requests and have those that are left cancelled before the next tick."""
        self.is_closing = True
        self._thread.close(drain=False, timeout=0)

    def close(self) -> None:
        """Give up what is left, for which nobody waits any more, and end the engine's thread."""
        self.give_up()
        self._preparer.shutdown(wait=False, cancel_futures=True)
        self._thread.close(drain=False, timeout=LAST_TICK_S)
