"""The engine owns every forward: it gathers what all live requests ask, runs it, and hands out the answers.

One tick:  asks -> strips -> forwards -> statistics -> one copy to the host -> answers.
Requests join and leave between ticks; a request gets the same answers alone or in company.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch

from ripple.caches import Cache
from ripple.caches import cache as cache_named
from ripple.canvas import Ints
from ripple.decoders import RPS, Decoder
from ripple.decoders import decoder as decoder_named
from ripple.engine.assemble import Sheet, pack, shape_of, view
from ripple.engine.graphs import Graphs
from ripple.engine.hear import Landing, reduce_tick
from ripple.engine.memory import LookBook
from ripple.engine.plan import Group, Reading, arrange
from ripple.engine.prompts import Prompt, many_prompts, token_ids
from ripple.engine.rehearse import rehearsal
from ripple.engine.result import Settings
from ripple.engine.session import Session
from ripple.engine.stats import Sampling
from ripple.errors import QueueFull, RippleError
from ripple.models.kv import KVStore
from ripple.models.transformer import Transformer
from ripple.text import Text
from ripple.trace import Event


class Engine:
    """A loaded model that decodes requests in continuous batches. Not safe for use from several threads."""

    def __init__(
        self, model: Transformer, text: Text | None = None, max_batch: int = 64, queue_limit: int = 4096
    ) -> None:
        self.model = model
        self.text = text
        self.max_batch = max_batch
        self.queue_limit = queue_limit
        self._waiting: deque[Session] = deque()
        self._live: list[Session] = []
        self._free_slots: list[int] = []
        self._n_slots = 0
        self._store = KVStore(model.config, model.device, model.dtype)
        self._looks = LookBook(model.config.vocab_size, model.device)
        self._landing = Landing(model.device)
        self._graphs = Graphs(model, self._store) if model.has_static_shapes else None

    # -- for users ----------------------------------------------------------------------------------

    def generate(
        self, prompts: Prompt | Sequence[Prompt], *, decoder: Decoder | str | None = None, length: int = 256,
        block: int = 32, cache: Cache | str = "none", lookahead: str = "packed", seed: int = 0,
        temperature: float = 0.0, stop_at_end: bool = False, stop: Sequence[str] = (), trace: bool = False,
    ) -> Any:  # fmt: skip
        """Decode one prompt to a `Result`, or a list of prompts to a list of them.

        A prompt is a string, a list of token ids, or a list of chat messages.
        """
        settings = Settings(
            _decoder(decoder), length, block, cache_named(cache), lookahead, seed, temperature,
            stop_at_end, _stops(stop), trace,
        )  # fmt: skip
        many = many_prompts(prompts)
        sessions = [self._session(prompt, settings) for prompt in many or [prompts]]
        self.run(sessions)
        results = [session.result() for session in sessions]
        return results if many is not None else results[0]

    def stream(
        self, prompt: Prompt, *, decoder: Decoder | str | None = None, length: int = 256, block: int = 32,
        cache: Cache | str = "none", lookahead: str = "packed", seed: int = 0, temperature: float = 0.0,
        stop_at_end: bool = False, stop: Sequence[str] = (),
    ) -> Iterator[Event]:  # fmt: skip
        """Decode one prompt and yield each trace event as it happens.

        `text` events carry text that can no longer change; joined, they are the result's text. The last
        event, `end`, holds the counts.
        """
        settings = Settings(
            _decoder(decoder), length, block, cache_named(cache), lookahead, seed, temperature,
            stop_at_end, _stops(stop), trace=True,
        )  # fmt: skip
        session = self._session(prompt, settings)
        self._enqueue(session)
        n_told, told = 0, ""
        try:
            while session.finish is None:
                self.tick()
                yield from session.events[n_told:]
                n_told = len(session.events)
                text = _without_broken_end(session.settled_text()) if session.finish is None else ""
                if len(text) > len(told) and not session.settings.stop:
                    yield Event("text", session.events[-1].t, {"text": text[len(told) :]})
                    told = text
        finally:
            session.cancel()
            self._retire()
        result = session.result()
        if len(result.text) > len(told):
            yield Event("text", result.seconds, {"text": result.text[len(told) :]})
        yield from session.events[n_told:]

    def submit(self, prompt: Prompt, settings: Settings) -> Session:
        """Queue a request for the next ticks; raise `QueueFull` when the line is at its limit."""
        session = self._session(prompt, settings)
        self._enqueue(session)
        return session

    def run(self, sessions: Sequence[Session]) -> None:
        """Decode these requests to the end, feeding them in as the queue has room."""
        feed = deque(sessions)
        try:
            while feed or any(session.finish is None for session in sessions):
                while feed and len(self._waiting) < self.queue_limit:
                    self._enqueue(feed.popleft())
                self.tick()
        except BaseException:
            for session in sessions:
                session.cancel()
            self._retire()
            raise

    @property
    def n_waiting(self) -> int:
        """Requests that have not been admitted yet."""
        return len(self._waiting)

    @property
    def n_live(self) -> int:
        """Requests that take part in the next tick."""
        return len(self._live)

    def borrow_keys(self, other: Engine) -> None:
        """Read another engine's stored keys, so that two ways to run one forward can be compared."""
        self._store = other._store

    # -- one tick -----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Admit what fits, run one forward for every live request, and let each decoder go on."""
        self._retire()
        self._admit()
        asking = [session for session in self._live if session.ask is not None]
        if asking:
            start = time.perf_counter()
            readings = [session.plan() for session in asking]
            hidden = self.hidden_states(readings)
            sampling = self._sampling(asking, readings, len(hidden))
            queued = reduce_tick(self.model, hidden, asking, readings, sampling, self._looks)
            heard = self._landing.hear(queued, meanwhile=rehearsal(asking[0], readings[0], queued))
            self.settle()
            seconds = time.perf_counter() - start
            for session, reading in zip(asking, readings, strict=True):
                if heard.is_finite(reading):
                    session.resume(heard.answer(session, reading), seconds)
                else:
                    session.fail("the model returned logits that are not finite (NaN or infinity)")
        if any(session.finish is not None for session in self._live):
            self._retire()

    def hidden_states(self, readings: Sequence[Reading]) -> torch.Tensor:
        """Run everything that was laid out in as few forwards as padding allows; give each draft its rows."""
        groups, reads = arrange(readings, self.model.config.logit_shift)
        if len(groups) == 1:
            return self._hidden(groups[0], reads[0])
        # A graph's output is overwritten when its shape comes again, hence the copies.
        return torch.cat([self._hidden(*pair).clone() for pair in zip(groups, reads, strict=True)])

    def settle(self) -> None:
        """Take note that the device has finished: what it was fed from may be written again."""
        if self._graphs is not None:
            self._graphs.settle()

    def _hidden(self, of: Group, read: Ints) -> torch.Tensor:
        """Run one group of strips."""
        if self._graphs is not None:
            return self._graphs.hidden(of, read)
        sheet = pack(of, read, Sheet(shape_of(of, len(read))))
        there = torch.from_numpy(sheet.flat).to(self.model.device)
        return self.model.hidden(view(there, sheet), self._store)

    def _sampling(self, asking: list[Session], readings: list[Reading], n: int) -> Sampling | None:
        """Return each row's temperature and uniform number, drawn per request, forward and position."""
        if all(session.settings.temperature == 0 for session in asking):
            return None
        temperature, uniform = np.zeros(n), np.zeros(n)
        for session, reading in zip(asking, readings, strict=True):
            if session.settings.temperature == 0:
                continue
            rng = np.random.default_rng((session.settings.seed, session.nfe))
            numbers = rng.random(len(session.canvas.response))
            for draft in reading.drafts:
                temperature[draft.rows] = session.settings.temperature
                uniform[draft.rows] = numbers[draft.pos - session.canvas.prompt_len]
        to = self.model.device
        return Sampling(torch.from_numpy(temperature).float().to(to), torch.from_numpy(uniform).to(to))

    # -- who takes part -----------------------------------------------------------------------------

    def _session(self, prompt: Any, settings: Settings) -> Session:
        """Check a prompt at the border and make it a request."""
        ids = token_ids(prompt, self.text, self.model.config)
        config = self.model.config
        if len(ids) + settings.length > config.max_positions:
            raise RippleError(
                f"Prompt of {len(ids)} tokens and length {settings.length} exceed the model's "
                f"{config.max_positions} positions."
            )
        return Session(ids, settings, config, self.text)

    def _enqueue(self, session: Session) -> None:
        if len(self._waiting) >= self.queue_limit:
            raise QueueFull(f"The queue is full: {self.queue_limit} requests are waiting.")
        self._waiting.append(session)

    def _admit(self) -> None:
        if self._waiting:
            self._make_room()
        while self._waiting and len(self._live) < self.max_batch:
            session = self._waiting.popleft()
            if session.finish is not None:
                continue  # cancelled while it waited
            if session.is_cached:
                session.slot = self._take_slot()
            if session.wants.kl:
                session.memory = self._looks.open(session.settings.length, session.canvas.prompt_len)
            session.start()
            self._live.append(session)

    def _retire(self) -> None:
        """Let go of requests that have ended, waiting or live."""
        ended = [session for session in self._live if session.finish is not None]
        for session in ended:
            if session.slot is not None:
                self._free_slots.append(session.slot)
                session.slot = None
            if session.memory is not None:
                self._looks.close(session.memory)
                session.memory = None
        if ended:
            self._live = [session for session in self._live if session.finish is None]
        if any(session.finish is not None for session in self._waiting):
            self._waiting = deque(session for session in self._waiting if session.finish is None)

    def _make_room(self) -> None:
        """Reserve keys for all requests that will be admitted now, at once: a store that grows is copied."""
        willing = (session for session in self._waiting if session.finish is None)
        coming = islice(willing, self.max_batch - len(self._live))
        lengths = [len(session.canvas.ids) for session in coming if session.is_cached]
        if lengths:
            n_taken = self._n_slots - len(self._free_slots)
            self._store.reserve(max(self._n_slots, n_taken + len(lengths)), max(lengths), self.max_batch)

    def _take_slot(self) -> int:
        if not self._free_slots:
            self._free_slots.append(self._n_slots)
            self._n_slots += 1
        slot = min(self._free_slots)
        self._free_slots.remove(slot)
        return slot


def _decoder(given: Decoder | str | None) -> Decoder:
    if given is None:
        return RPS()
    return decoder_named(given) if isinstance(given, str) else given


def _stops(stop: Sequence[str]) -> tuple[str, ...]:
    return (stop,) if isinstance(stop, str) else tuple(stop)


def _without_broken_end(text: str) -> str:
    """Hold back characters whose bytes are not all there yet."""
    return text.rstrip("\ufffd")
