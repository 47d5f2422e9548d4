"""One request's life: its canvas, its conversation with the decoder, its counts and its cache state.

Counting exists here and nowhere else. State advances when an answer is delivered, so a forward that fails
or is interrupted can be run again.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec

import numpy as np

from ripple.caches import CACHES, Cache, CacheState, check_positions
from ripple.canvas import MOST_ROWS, Ints, Window
from ripple.decoders.base import Decoder
from ripple.engine import facts, failures
from ripple.engine.blocks import check_options, conversation, new_canvas
from ripple.engine.kl_history import KLEntry
from ripple.engine.layout import AskLayout, build_layout, next_token_layout
from ripple.engine.response import ResponseReader
from ripple.engine.result import Result
from ripple.engine.work import Uniform, Work
from ripple.errors import RequestError, RippleError
from ripple.look import Answer, Ask, check_ask, check_wants
from ripple.models.base import ModelConfig
from ripple.options import LENGTH, Options
from ripple.tokenizer import Tokenizer
from ripple.trace import Event

Listener = Callable[[Event], None]
P = ParamSpec("P")

_numbers = itertools.count()
_NO_TOKENS: Ints = np.zeros(0, dtype=np.int64)


def _contained(step: Callable[Concatenate[Request, P], None]) -> Callable[Concatenate[Request, P], None]:
    """Have whatever a step of a request raises end that request and no other."""

    @functools.wraps(step)
    def contained(request: Request, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            step(request, *args, **kwargs)
        except BaseException as error:  # a decoder's settings, a cache's name: other packages have those, too
            if failures.is_interrupt(error):  # half a step can be neither undone nor done again
                request.fail("it was interrupted")
                raise
            request.fail(f"counting or telling it raised {failures.named(error)}", error)

    return contained


class Request:
    """A request that is waiting, live or finished. `finish` is None until it has ended."""

    def __init__(
        self, prompt: Ints, options: Options, decoder: Decoder, config: ModelConfig,
        tokenizer: Tokenizer | None,
    ) -> None:  # fmt: skip
        self.number = next(_numbers)
        self.options = options
        self.length = options.length or LENGTH
        self.decoder = decoder
        self.cache: Cache = options.policy
        self.config = config
        self.tokenizer = tokenizer
        check_options(options, config)
        self.canvas = new_canvas(prompt, options, config)
        self.reader = ResponseReader(self.canvas, config, tokenizer, options.stop)
        self.conversation = conversation(decoder, self.canvas, config)
        self.wants = check_wants(decoder.wants)
        self.is_queued = False
        self.ask: Ask | None = None
        self.nfe_normal = self.nfe_lookahead = self.canvases = self.n_limited = 0
        self.positions = 0  # of the response, in all canvases that were evaluated
        self.seconds = self.engine_seconds = 0.0
        self.finish: str | None = None
        self.error: RequestError | None = None
        self.slot: int | None = None  # of the key store, given on admission to requests that use a cache
        self.kl: KLEntry | None = None  # given on admission to requests that want KL
        self.cache_state = CacheState.new(self.canvas, config.logit_shift)
        self._events: list[Event] | None = [] if options.trace else None
        self._listener: Listener | None = None
        self._is_text_enough = False  # for the listener
        self._told_text = ""  # what the listener has been given of the response's text
        self._n_told = 0  # final tokens that it was made of
        self._told_tokens: set[int] = set()  # that events have named; their pieces end a trace
        self.new_tokens: list[int] = []  # of the result, once there is one
        self._t0 = time.perf_counter()

    # -- life ---------------------------------------------------------------------------------------

    @_contained
    def start(self) -> None:
        """Begin the conversation and the clock."""
        self._t0 = time.perf_counter()
        if self.listens:
            self.canvas.observer = self._record
            self._record("start", facts.start(self))
        self._advance(None)

    def cancel(self) -> None:
        """End the request; what was final stays in its result."""
        if self.finish is None:
            self._close("cancelled")

    @_contained
    def deliver(self, work: Work, answer: Answer, seconds: float) -> None:
        """Count one forward, hand the decoder its answer and take its next ask."""
        ask, row = work.ask, work.layout.base.row
        n_canvases = 1 + len(ask.branches) + bool(ask.shadow)
        was_refresh = self.cache.match_fast_dllm_first and self.is_refresh
        self.cache_state.advance(row, row.store_slot is not None, answer)
        if work.kl is not None:
            work.kl.advance()
        if ask.branches:
            self.nfe_lookahead += 1
        else:
            self.nfe_normal += 1
        self.canvases += n_canvases
        self.positions += n_canvases * len(self.canvas.response)
        self.n_limited += self.canvas.most_rows < MOST_ROWS
        if self.listens:
            self._record("forward", facts.forward(self, ask, answer, n_canvases, seconds))
        if self.nfe > self._most_forwards:
            self.fail(f"the decoder has not filled {self.most_tokens} positions in {self.nfe} forwards")
        elif not (was_refresh and self._force_first(ask, answer)):
            self._advance(answer)
        if self._listener is not None and self.finish is None:
            self._tell_final_text()

    def fail(self, reason: str, cause: BaseException | None = None, where: str = "") -> None:
        """End the request with an error that names it, its decoder and the forward."""
        if self.finish is not None:
            return
        where = where or f"forward {self.nfe + 1}"
        what = f"decoder {self.decoder.name!r}, {where}: {reason}."
        self.error = RequestError(f"Request {self.number}, {what}")
        self.error.what = f"{what[:1].upper()}{what[1:]}"
        self.error.__cause__ = cause
        self._close("error")

    @property
    def nfe(self) -> int:
        """Forwards waited for so far."""
        return self.nfe_normal + self.nfe_lookahead

    @property
    def _most_forwards(self) -> int:
        # Every decoder commits at least one token per forward, revocations included on average.
        n_blocks = -(-self.most_tokens // self.canvas.block)
        return 4 * self.most_tokens + 64 + n_blocks * self.decoder.idle_forwards

    @property
    def most_tokens(self) -> int:
        """Positions of the response, as long as it may grow."""
        return self.canvas.max_len - self.canvas.prompt_len

    def _advance(self, answer: Answer | None) -> None:
        """Resume the decoder; whatever it raises ends this request and no other."""
        n_adoptable = 0 if self.ask is None else len(self.ask.branches)
        where = f"after forward {self.nfe}" if self.nfe else "before its first forward"
        try:
            ask = next(self.conversation) if answer is None else self.conversation.send(answer)
            if self.finish is None:  # an observer may have cancelled the request meanwhile
                self.ask = check_ask(ask, self.canvas, n_adoptable, self.config.causal_context)
                self._stop_early()
                self._fill_end()
        except StopIteration:
            self.ask = None
            self._close("incomplete" if self.canvas.n_masked else "done")
        except BaseException as error:
            if failures.is_interrupt(error):  # the generator is dead, but whoever sent it goes on
                self.fail("the decoder was interrupted", where=where)
                raise
            self.fail(failures.of_decoder(error), error, where)

    def _stop_early(self) -> None:
        """End the request when its final text has ended, if it was asked to."""
        if self.finish is not None or not (self.options.stop_at_end or self.options.stop):
            return
        tokens = self.final_tokens()
        if (self.options.stop_at_end and self.reader.has_end(tokens)) or (
            self.options.stop and self._stop_in(tokens)
        ):
            self._close("done")

    def _fill_end(self) -> None:
        """Fill what follows a final end token, if that is wanted: the answer cannot change any more."""
        if self.finish is not None or not self.options.fills_end(self.decoder):
            return
        tokens = self.final_tokens()
        if self.reader.has_end(tokens):
            end = self.reader.until_end(tokens)[-1]
            rest = self.canvas.masked(Window(self.canvas.prompt_len, len(self.canvas.ids)))
            self.canvas.commit(rest, np.full(len(rest), end), np.ones(len(rest), dtype=np.float32), "end")
            self._close("done")

    def _close(self, how: str) -> None:
        """End the request: `done`, `cancelled`, `incomplete` or `error`."""
        if self.finish is not None:
            return
        is_full = how == "done" and not self.canvas.n_masked
        tokens = self._cut(self.canvas.response.tolist()) if is_full else self.final_tokens()
        self.new_tokens = self.reader.until_end(tokens)
        self.finish = self._how_it_ends() if how == "done" else how
        self.ask = None
        self.seconds = time.perf_counter() - self._t0
        with contextlib.suppress(Exception):  # of the generator's clean-up, or because it is running just now
            self.conversation.close()
        if how != "error" and (self.listens or self._listener is not None):
            result = self.result()
            self._tell_text(result.text)
            if self.listens:
                self._tell("end", facts.end(self, result, self._told_tokens))

    def _how_it_ends(self) -> str:
        if self.options.stop and self._stop_in(self.new_tokens):
            return "stop"
        return "end" if self.reader.has_end(self.new_tokens) else "length"

    def _stop_in(self, tokens: list[int]) -> bool:
        """Say whether a stop string stands in the text of these tokens, up to the first end token."""
        return self.reader.stop_at(self.reader.decoded(self.reader.until_end(tokens))) is not None

    # -- one forward --------------------------------------------------------------------------------

    @property
    def is_cached(self) -> bool:
        """Whether this request keeps keys between forwards."""
        return self.cache.name != "none"

    @property
    def is_refresh(self) -> bool:
        """Whether the pending ask recomputes all that its cache ever does: a new block, or a refresh."""
        return self.is_cached and self.cache.is_refresh(self._state())

    def work(self) -> Work:
        """Lay out the pending ask and say what is wanted of it; nothing changes by that."""
        assert self.ask is not None
        lookahead = self.options.lookahead
        layout = self.build_layout(lookahead)
        shadow = layout.shadow
        return Work(
            ask=self.ask,
            layout=layout,
            top=self.wants.top,
            shadow_tokens=_NO_TOKENS if shadow is None else self.canvas.ids[shadow.pos],
            kl=None if self.ask.next_token else self.kl,
            prompt_len=self.canvas.prompt_len,
            temperature=self.options.temperature,
            uniform=self._uniform() if self.options.temperature else None,
            rebuild=lambda: self.build_layout(lookahead),
        )

    def build_layout(self, lookahead: str) -> AskLayout:
        """Lay the pending ask out with packed, batched or thin branches."""
        assert self.ask is not None
        try:
            is_refresh, live, stores = self._live_positions()
        except Exception as error:
            raise RippleError(failures.of_cache(self.cache.name, error)) from error
        if self.ask.reread:  # a row that is read has to be computed, even where a cache would let it rest
            live = np.union1d(live, self.canvas.revealed(self.ask.window) - self.config.logit_shift)
        store_slot = self.slot if is_refresh or stores else None
        if self.ask.next_token:
            start = self.ask.window.start
            live = live[live < start]
            slot = self.slot if len(live) < start else None
            return next_token_layout(self.canvas, start, live, self.config, slot, store_slot)
        slot = self.slot if len(live) < len(self.canvas.ids) else None
        return build_layout(self.canvas, self.ask, live, self.config, lookahead, slot, store_slot)

    def _live_positions(self) -> tuple[bool, Ints, bool]:
        """Ask the cache: is this a refresh, which positions are recomputed, does it store every step."""
        state, cache, is_refresh = self._state(), self.cache, self.is_refresh
        live = cache.refresh_positions(state) if is_refresh else cache.step_positions(state)
        if CACHES.get(cache.name) is not type(cache):  # of another package; our own are tested instead
            live = check_positions(live, state)
        return is_refresh, live, cache.stores_every_step

    def _state(self) -> CacheState:
        """Return the cache state before the pending ask."""
        assert self.ask is not None
        self.cache_state.turn_to(self.ask.window)
        return self.cache_state

    def _uniform(self) -> Uniform:
        """Draw a number for each response position, by seed and forward, so that company changes nothing."""
        rng = np.random.default_rng((self.options.seed, self.nfe))
        return rng.random(self.most_tokens)

    def _force_first(self, ask: Ask, answer: Answer) -> bool:
        """Commit a block's first token and nothing else after a refresh, as Fast-dLLM's cached Dream does."""
        look = answer.base
        if not (self.config.logit_shift and self.is_cached):
            return False
        if len(look) < 2 or look.pos[0] != ask.window.start:
            return False
        self.canvas.commit(look.pos[:1], look.token[:1], look.p[:1], "forced")
        return True  # the same ask again, now on frozen keys

    # -- what is told -------------------------------------------------------------------------------

    @property
    def listens(self) -> bool:
        """Whether anybody wants more of the request's events than its text."""
        return self._events is not None or (self._listener is not None and not self._is_text_enough)

    def final_tokens(self) -> list[int]:
        """Return the response tokens that can no longer change."""
        return self._cut(
            self.reader.final_tokens(self.ask.window if self.ask else None, self.decoder.revokes)
        )

    def _cut(self, tokens: list[int]) -> list[int]:
        """Return at most as many tokens as were asked for; a canvas may end with a whole block."""
        return tokens[: self.length]

    def listen(self, listener: Listener, text_only: bool = False) -> None:
        """Have a listener told of every event of a trace and of `text` events, or of those alone."""
        self._listener, self._is_text_enough = listener, text_only

    def result(self) -> Result:
        """Return the finished request's result, or raise its error."""
        if self.error is not None:
            raise self.error
        if self.finish is None:
            raise RippleError(f"Request {self.number} is still running.")
        return Result(
            text=self.reader.text(self.new_tokens),
            token_ids=self.canvas.response.tolist(),
            new_tokens=self.new_tokens,
            nfe_normal=self.nfe_normal,
            nfe_lookahead=self.nfe_lookahead,
            canvases=self.canvases,
            n_limited=self.n_limited,
            seconds=self.seconds,
            engine_seconds=self.engine_seconds,
            finish=self.finish,
            is_full=not self.canvas.n_masked,
            prompt_tokens=self.canvas.prompt_len,
            causes=self.canvas.causes,
            trace=self._events,
            tokenizer=self.tokenizer,
        )

    def _record(self, kind: str, data: dict[str, Any]) -> None:
        if self.finish is None:
            self._tell(kind, data)

    def _tell(self, kind: str, data: dict[str, Any]) -> None:
        """Hand an event to the trace and the listener."""
        is_text = kind == "text"
        if not (is_text or self.listens):
            return
        self._told_tokens.update(facts.tokens(data))
        event = Event(kind, time.perf_counter() - self._t0, data)
        if self._events is not None and not is_text:
            self._events.append(event)
        if self._listener is not None and (is_text or not self._is_text_enough):
            try:
                self._listener(event)
            except Exception as error:  # it is told nothing more, and its request fails even at its end
                self._listener = self.finish = None
                self.fail(f"what listens to it raised {failures.named(error)}", error)

    def _tell_final_text(self) -> None:
        """Tell the listener what text has become final, if any token has."""
        tokens = self.final_tokens()
        if len(tokens) > self._n_told:
            self._n_told = len(tokens)
            self._tell_text(self.reader.streamable(self.reader.until_end(tokens)))

    def _tell_text(self, text: str) -> None:
        """Tell the listener what text has become final since the last time."""
        if self._listener is not None and len(text) > len(self._told_text):
            self._tell("text", {"text": text[len(self._told_text) :]})
            self._told_text = text


def results_of(requests: Sequence[Request]) -> list[Result]:
    """Return the results, or raise the first error with all outcomes in it."""
    errors = [request.error for request in requests if request.error is not None]
    if errors:
        errors[0].results = [request.error or request.result() for request in requests]
        raise errors[0]
    return [request.result() for request in requests]
