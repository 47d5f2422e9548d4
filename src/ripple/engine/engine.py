"""The engine gathers what all live requests ask, has one forward run for it, and hands out the answers.

One tick:  asks -> layouts -> runner (forwards, statistics, one copy to the host) -> answers.
Requests join and leave between ticks; a request gets the same answers alone or in company, and its failure is
its own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Unpack, overload

from ripple.canvas import MOST_ROWS
from ripple.decoders import Decoder, Setup, family_decoder
from ripple.engine import failures
from ripple.engine.admission import Admission, check_count, check_memory
from ripple.engine.blocks import block_of, with_length
from ripple.engine.prompts import OnePrompt, Prompt, many_prompts, token_ids
from ripple.engine.request import Request, results_of
from ripple.engine.result import Result
from ripple.engine.runner import DeviceRunner, Runner, run_contained
from ripple.engine.step_curve import StepCurve, row_limit
from ripple.engine.thread import EngineThread
from ripple.engine.work import Work
from ripple.errors import QueueFull, RippleError
from ripple.models.base import Model
from ripple.options import LENGTH, OptionFields, Options, combine, per_prompt
from ripple.tokenizer import Tokenizer
from ripple.trace import Event

GB = 1e9


class Engine:
    """A loaded model that decodes requests in continuous batches.

    Its methods belong to one thread at a time. `engine.thread` runs it in a thread of its own, for callers
    from any thread and from asyncio; `generate` and `stream` then go through that thread.

    Args:
        model: what is run.
        tokenizer: turns text into token ids and back; without one, prompts are token ids.
        max_batch: how many requests take part in one tick.
        queue_limit: how many requests may wait beside them.
        memory_gb: budget for stored keys and KL histories; by default a share of the device's free memory.
        folder: the checkpoint's, where decoders look for files of their own.
        runner: runs the forwards; by default on the model's device, in this process.
    """

    def __init__(
        self, model: Model, tokenizer: Tokenizer | None = None, max_batch: int = 64, queue_limit: int = 4096,
        memory_gb: float | None = None, folder: Path | None = None, runner: Runner | None = None,
    ) -> None:  # fmt: skip
        check_count("max_batch", max_batch)
        check_count("queue_limit", queue_limit)
        check_memory(memory_gb)
        self.model = model
        self.tokenizer = tokenizer
        self.queue_limit = queue_limit
        self.folder = folder
        self.runner: Runner = DeviceRunner(model) if runner is None else runner
        budget = self.runner.free_bytes() if memory_gb is None else memory_gb * GB
        self._admission = Admission(self.runner, max_batch, budget)
        self._waiting: deque[Request] = deque()
        self._live: list[Request] = []
        self._thread: EngineThread | None = None
        self._thread_start = threading.Lock()
        self._step_curve: StepCurve | None = None
        self.most_rows = MOST_ROWS  # of one request in the next tick; a lookahead budget may allow fewer

    # -- decoding -----------------------------------------------------------------------------------

    @overload
    def generate(  # type: ignore[overload-overlap]  # an empty list would be both, and is refused
        self, prompts: OnePrompt, options: Options | None = None, **fields: Unpack[OptionFields]
    ) -> Result: ...

    @overload
    def generate(
        self, prompts: Sequence[Prompt], options: Options | Sequence[Options] | None = None,
        **fields: Unpack[OptionFields],
    ) -> list[Result]: ...  # fmt: skip

    def generate(
        self, prompts: Prompt | Sequence[Prompt], options: Options | Sequence[Options] | None = None,
        **fields: Unpack[OptionFields],
    ) -> Result | list[Result]:  # fmt: skip
        """Decode one prompt to a `Result`, or a list of prompts to a list of them.

        A prompt is a string, token ids (a list, an array or a tensor), or a list of chat messages. With
        several prompts, `options` or any keyword may be a list with one value for each. When a request
        fails, the others are decoded to their end, and the error that is raised carries all outcomes as
        `results`.
        """
        requests, is_one = self._prepare_all(prompts, options, fields)
        if self.has_thread:
            with self.thread.tickets() as tickets:
                for request in requests:
                    tickets.append(self.thread.put(request))
                for ticket in tickets:
                    ticket.wait()
        else:
            for _ in self.drain(requests):
                pass
        results = results_of(requests)
        return results[0] if is_one else results

    @overload
    async def agenerate(  # type: ignore[overload-overlap]
        self, prompts: OnePrompt, options: Options | None = None, **fields: Unpack[OptionFields]
    ) -> Result: ...

    @overload
    async def agenerate(
        self, prompts: Sequence[Prompt], options: Options | Sequence[Options] | None = None,
        **fields: Unpack[OptionFields],
    ) -> list[Result]: ...  # fmt: skip

    async def agenerate(
        self, prompts: Prompt | Sequence[Prompt], options: Options | Sequence[Options] | None = None,
        **fields: Unpack[OptionFields],
    ) -> Result | list[Result]:  # fmt: skip
        """Decode as `generate` does, in the engine's thread, without blocking the event loop."""
        requests, is_one = self._prepare_all(prompts, options, fields)
        with self.thread.tickets() as tickets:
            for request in requests:
                tickets.append(await self.thread.aput(request))
            for ticket in tickets:
                await ticket.finished()
        results = results_of(requests)
        return results[0] if is_one else results

    def stream(
        self, prompt: Prompt, options: Options | None = None, **fields: Unpack[OptionFields]
    ) -> Iterator[Event]:
        """Decode one prompt and yield each trace event as it happens.

        `text` events carry text that can no longer change; joined, they are the result's text. The last
        event, `end`, holds the counts.
        """
        if self.has_thread:
            return self.thread.stream(self.prepare(prompt, options, **fields))
        events: deque[Event] = deque()
        request = self.prepare(prompt, options, **fields)
        request.listen(events.append)
        return self._events(request, events)

    def astream(
        self, prompt: Prompt, options: Options | None = None, **fields: Unpack[OptionFields]
    ) -> AsyncIterator[Event]:
        """Decode one prompt in the engine's thread; `async for` gets each trace event as it happens."""
        return self.thread.astream(self.prepare(prompt, options, **fields))

    # -- requests -----------------------------------------------------------------------------------

    def prepare(
        self, prompt: Prompt, options: Options | None = None, **fields: Unpack[OptionFields]
    ) -> Request:
        """Check everything that can be checked and return a request that is not queued yet."""
        options = combine(options, fields)
        config = self.model.config
        ids = token_ids(prompt, self.tokenizer, config)
        if options.length is None:
            options = with_length(options, len(ids), config, self._admission.most_positions(options))
        request = Request(ids, options, self.decoder_of(options), config, self.tokenizer)
        self._admission.check(request)
        return request

    def submit(
        self, prompt: Prompt, options: Options | None = None, **fields: Unpack[OptionFields]
    ) -> Request:
        """Queue a request for the next ticks; raise `QueueFull` when the queue is at its limit."""
        request = self.prepare(prompt, options, **fields)
        self.enqueue(request)
        return request

    def enqueue(self, request: Request) -> None:
        """Queue a prepared request; each is decoded once."""
        self._check_owner()
        if request.is_queued:
            raise RippleError(f"Request {request.number} has been queued before; prepare another.")
        if request.config is not self.model.config:
            raise RippleError(f"Request {request.number} was prepared by an engine with another model.")
        self._admission.check(request)  # the engine that prepared it may have another budget
        if len(self._waiting) >= self.queue_limit:
            raise QueueFull(f"The queue is full: {self.queue_limit} requests are waiting.")
        request.is_queued = True
        self._waiting.append(request)

    def decoder_of(self, options: Options) -> Decoder:
        """Return the decoder that the options mean on this model."""
        config = self.model.config
        setup = Setup(options.length or LENGTH, block_of(options, config), config.family, self.folder)
        return family_decoder(options.decoder, setup.family).fitted(setup)

    def drain(self, requests: Iterable[Request]) -> Generator[Request]:
        """Decode requests to their end and yield each one as it ends."""
        for ended in self.steps(requests):
            yield from ended

    def steps(self, requests: Iterable[Request]) -> Generator[list[Request]]:
        """Decode requests to their end; yield, after every tick, those that ended in it.

        Requests that are not queued yet are fed in as the queue has room. Whoever leaves early cancels the
        rest.
        """
        feed, mine = iter(requests), dict[int, Request]()
        coming = next(feed, None)
        try:
            while True:
                room = max(1, min(self.max_batch, self.queue_limit))
                while coming is not None and (coming.is_queued or len(self._waiting) < room):
                    if not coming.is_queued:
                        self.enqueue(coming)
                    mine[coming.number] = coming
                    coming = next(feed, None)
                if coming is None and not mine:
                    return
                self.tick()
                ended = [request for request in mine.values() if request.finish is not None]
                for request in ended:
                    del mine[request.number]
                if mine and not (ended or self._live or self._waiting):  # it would never end
                    raise RippleError(f"Request {next(iter(mine))} is queued in another engine.")
                yield ended
        finally:
            for request in mine.values():
                request.cancel()
            self._retire()

    @property
    def max_batch(self) -> int:
        """How many requests take part in one tick."""
        return self._admission.max_batch

    @max_batch.setter
    def max_batch(self, value: int) -> None:
        check_count("max_batch", value)
        self._admission.max_batch = value

    @property
    def n_waiting(self) -> int:
        """Requests that have not been admitted yet."""
        return len(self._waiting)

    @property
    def n_live(self) -> int:
        """Requests that take part in the next tick."""
        return len(self._live)

    def reserve(self, n_requests: int, n_positions: int) -> None:
        """Make room for the keys of so many requests of this length now, as far as the budget goes.

        A server reserves once: later requests then move no keys, and captured graphs stay valid.
        """
        check_count("n_requests", n_requests)
        check_count("n_positions", n_positions)
        if self.has_thread:
            self.thread.run(lambda: self._admission.reserve(n_requests, n_positions))
        else:
            self._admission.reserve(n_requests, n_positions)

    # -- one tick -----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Admit what fits, run one forward for every live request, and let each decoder go on."""
        self._check_owner()
        start = time.perf_counter()
        self._retire()
        self._admit()
        gather_start = time.perf_counter()
        requests, work = self._gather()
        if work:
            outcomes = run_contained(self.runner, work)
            limits = self._row_limits(requests, work)
            seconds = time.perf_counter() - gather_start
            for request, one, outcome in zip(requests, work, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    request.fail(failures.of_forward(outcome), outcome)
                elif request.finish is None:
                    request.canvas.most_rows = limits[request.options.lookahead_budget]
                    request.deliver(one, outcome, seconds)
        self._retire()
        seconds = time.perf_counter() - start  # admission and the decoders' own time included
        for request in requests:
            request.engine_seconds += seconds / len(requests)

    def _gather(self) -> tuple[list[Request], list[Work]]:
        """Return the live requests and the work of each; one that cannot be laid out fails."""
        requests: list[Request] = []
        work: list[Work] = []
        for request in self._live:
            if request.finish is None:
                try:
                    work.append(request.work())
                except Exception as error:
                    request.fail(failures.of_layout(error), error.__cause__ or error)
                else:
                    requests.append(request)
        return requests, work

    def _row_limits(self, requests: Sequence[Request], work: Sequence[Work]) -> dict[float | None, int]:
        """Return, per lookahead budget, how many rows a request's next window and branches may have."""
        n_coming = min(self.max_batch, len(self._live) + len(self._waiting))
        limits: dict[float | None, int] = {None: MOST_ROWS}
        for request in requests:
            budget = request.options.lookahead_budget
            if budget is not None and budget not in limits:
                try:
                    limits[budget] = row_limit(self.step_curve, work, n_coming, budget)
                except Exception as error:  # of the forwards that measure the curve
                    why = f"what a forward costs could not be measured: {failures.named(error)}"
                    request.fail(why, error)
        self.most_rows = min(limits.values())
        return limits

    @property
    def step_curve(self) -> StepCurve:
        """What a forward costs at so many rows, measured when it is first asked for."""
        if self._step_curve is None:
            self._step_curve = StepCurve.measure(self.runner)
        return self._step_curve

    @step_curve.setter
    def step_curve(self, curve: StepCurve) -> None:
        self._step_curve = curve

    def _admit(self) -> None:
        if self._waiting:
            try:
                self._live += self._admission.admit(self._waiting, len(self._live))
            except Exception as error:  # no memory for keys, although the budget says so
                request = self._waiting.popleft()
                request.fail(f"no room could be made for its keys: {failures.named(error)}", error)
        for request in self._live:
            if request.ask is None and request.finish is None:  # new, or a start before it was interrupted
                request.start()

    def _retire(self) -> None:
        """Let go of requests that have ended, waiting or live."""
        ended = [request for request in self._live if request.finish is not None]
        for request in ended:
            self._admission.release(request)
        if ended:
            self._live = [request for request in self._live if request.finish is None]
        if any(request.finish is not None for request in self._waiting):
            self._waiting = deque(request for request in self._waiting if request.finish is None)

    # -- threads ------------------------------------------------------------------------------------

    @property
    def thread(self) -> EngineThread:
        """The thread that runs this engine, started when it is first asked for."""
        with self._thread_start:
            if self._thread is None or not (self._thread.is_alive or self._thread.error):
                self._retire()
                if self._live or self._waiting:
                    raise RippleError("The engine is decoding; start its thread when nothing is queued.")
                self._thread = EngineThread(self)
            return self._thread

    @property
    def has_thread(self) -> bool:
        """Whether the engine's thread runs it now."""
        return self._thread is not None and self._thread.is_alive

    def close(self, drain: bool = True) -> None:
        """End the engine's thread, after everything queued is decoded unless `drain` is False."""
        if self._thread is not None:
            self._thread.close(drain)

    def _check_owner(self) -> None:
        if self.has_thread and self._thread is not None and not self._thread.is_current:
            raise RippleError("The engine is run by its own thread; use engine.thread, generate or stream.")

    # -- helpers ------------------------------------------------------------------------------------

    def _prepare_all(
        self, prompts: Prompt | Sequence[Prompt], options: Options | Sequence[Options] | None,
        fields: OptionFields,
    ) -> tuple[list[Request], bool]:  # fmt: skip
        """Return a request for each prompt, and whether a single prompt was given."""
        many = many_prompts(prompts)
        each = many if many is not None else [prompts]
        settings = per_prompt(len(each), options, fields)
        return [self.prepare(*pair) for pair in zip(each, settings, strict=True)], many is None

    def _events(self, request: Request, events: deque[Event]) -> Iterator[Event]:
        """Decode a request and yield its events; raise its error after the last one."""
        with closing(self.steps([request])) as steps:
            for _ in steps:
                while events:
                    yield events.popleft()
        request.result()
