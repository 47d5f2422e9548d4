"""What other packages, callers and a full machine do wrong stays with the request that it belongs to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import ripple
from ripple.caches import CACHES, CacheState
from ripple.canvas import Canvas
from ripple.decoders import DECODERS
from ripple.decoders.base import Conversation
from ripple.engine.engine import Engine
from ripple.engine.kl_history import KLEntry, KLHistory
from ripple.engine.step_curve import StepCurve
from ripple.look import Ask
from ripple.models.kv_store import KVStore
from tests.engine.test_failures import NEIGHBOUR, OTHER, PROMPT, drain, outcome, tokens

HOW: dict[str, Any] = {"decoder": "default", "length": 16, "block": 8, "cache": "dual"}


@pytest.fixture
def engine(engines: dict[str, Engine], family: str) -> Iterator[Engine]:
    """An engine with a store and a history of its own."""
    engine = Engine(engines[family].model, folder=engines[family].folder, queue_limit=4)
    yield engine
    engine.close(drain=False)


def assert_alone_fails(engine: Engine, bad: ripple.Request, sentence: str) -> None:
    """The bad request, which waits already, ends with this error; one behind it is as it would be alone."""
    good = engine.submit(OTHER, **NEIGHBOUR)
    drain(engine, bad, good)
    with pytest.raises(ripple.RequestError, match=sentence):
        bad.result()
    assert engine._admission.n_held == engine.runner._history.n_rows == 0
    assert outcome(good) == tokens(engine, OTHER, **NEIGHBOUR)


# -- caches of other packages ----------------------------------------------------------------------------


class Given(ripple.DualCache):
    """A cache whose positions are what a test gives it."""

    refresh_of: Callable[[CacheState], Any] | None = None
    step_of: Callable[[CacheState], Any] | None = None

    def refresh_positions(self, state: CacheState) -> Any:
        return super().refresh_positions(state) if self.refresh_of is None else self.refresh_of(state)

    def step_positions(self, state: CacheState) -> Any:
        return super().step_positions(state) if self.step_of is None else self.step_of(state)


def giving(**functions: Callable[[CacheState], Any]) -> ripple.Cache:
    return type("Giving", (Given,), {name: staticmethod(call) for name, call in functions.items()})()


N = len(PROMPT) + 16
BROKEN_CACHES: list[tuple[dict[str, Any], str]] = [
    ({"step_of": lambda s: None}, "forward 2: the cache 'dual': Positions must be a one-dimensional array"),
    ({"step_of": lambda s: list(range(N))}, "must be a one-dimensional array of whole numbers, got"),
    ({"step_of": lambda s: np.arange(N) / 1}, "must be a one-dimensional array of whole numbers"),
    ({"step_of": lambda s: np.ones(N, bool)}, "must be a one-dimensional array of whole numbers"),
    ({"step_of": lambda s: np.arange(0)}, r"must be some of 0 to 18, ascending, got \[\]"),
    ({"step_of": lambda s: np.arange(400)}, r"ascending, got \[  0   1   2 \.\.\. 397 398 399\]"),
    ({"step_of": lambda s: np.arange(-1, N)}, "must be some of 0 to 18, ascending"),
    ({"step_of": lambda s: np.arange(N)[::-1]}, "must be some of 0 to 18, ascending"),
    ({"step_of": lambda s: np.arange(N).repeat(2)}, "must be some of 0 to 18, ascending"),
    ({"step_of": lambda s: np.arange(3)}, r"Position \d is read and must be recomputed"),
    ({"refresh_of": lambda s: np.arange(0)}, "forward 1: the cache 'dual': Positions must be"),
    ({"refresh_of": lambda s: np.arange(1, N)}, "forward 1: the cache 'dual': Position 0 has no keys yet"),
]


@pytest.mark.parametrize("functions, sentence", BROKEN_CACHES)
def test_wrong_positions_of_a_cache_are_an_error_of_its_request(
    engine: Engine, functions: dict[str, Any], sentence: str
) -> None:
    assert_alone_fails(engine, engine.submit(PROMPT, **HOW | {"cache": giving(**functions)}), sentence)


def test_ripples_own_caches_pass_the_check_of_others(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not checked while they run, so they are here."""
    caches = [
        *(name for name, cls in CACHES.items() if not cls.needs_blocks), "dual:keep_prompt=true",
        "dual:refresh=2", "prefix:match_fast_dllm_first=true", "dual:match_fast_dllm_first=true",
        "d2:masks=3,rest=0", "slide:refresh=3",
    ]  # fmt: skip
    decoders = [name for name in DECODERS for _ in caches]
    how = {"decoder": decoders, "length": 20, "block": 6, "cache": caches * len(DECODERS)}
    prompts = [PROMPT] * len(decoders)
    plain = engine.generate(prompts, **how)
    monkeypatch.setattr("ripple.engine.request.CACHES", {})
    checked = engine.generate(prompts, **how)
    assert [r.token_ids for r in checked] == [r.token_ids for r in plain]


# -- what decoders and listeners do outside of decoding -----------------------------------------------------


def raising(*_: Any) -> Any:
    raise OSError("a disk")


@pytest.mark.parametrize("name", ["settings", "idle_forwards"])
def test_whatever_of_a_decoder_raises_ends_its_request(engine: Engine, name: str) -> None:
    value = property(raising) if name == "idle_forwards" else raising
    decoder = type("Odd", (ripple.Confidence,), {name: value})()
    bad = engine.submit(PROMPT, **HOW | {"decoder": decoder, "trace": True})
    assert_alone_fails(engine, bad, "decoder 'confidence', forward .*raised OSError: a disk")


@pytest.mark.parametrize("kind", ["start", "forward", "commit", "end"])
def test_a_listener_that_raises_ends_its_request(engine: Engine, kind: str) -> None:
    bad = engine.prepare(PROMPT, **HOW)
    bad.listen(lambda event: raising() if event.kind == kind else None)
    engine.enqueue(bad)
    assert_alone_fails(engine, bad, "what listens to it raised OSError: a disk")


@pytest.mark.parametrize("top", [1, 2, 5])
def test_looks_have_the_top_tokens_that_were_wanted_whoever_else_wants_more(engine: Engine, top: int) -> None:
    widths = set()

    class Counting(ripple.Confidence):
        @property
        def wants(self) -> ripple.Wants:
            return ripple.Wants(top=top)

        def decode(self, canvas: Canvas) -> Conversation:
            for window in canvas.windows():
                while len(canvas.masked(window)):
                    look = (yield Ask(window)).base
                    widths.add((look.top_token.shape[1], look.top_p.shape[1]))
                    canvas.commit(look.pos[:1], look.token[:1], look.p[:1], "standard")

    engine.generate([PROMPT, OTHER], decoder=[Counting(), ripple.RPS(k_max=9)], length=16, block=8)
    assert widths == {(top, top)}


def test_a_curve_that_cannot_be_measured_ends_the_requests_that_need_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StepCurve, "measure", raising)
    bad = engine.submit(PROMPT, **HOW | {"lookahead_budget": 0.5})
    assert_alone_fails(engine, bad, "what a forward costs could not be measured: OSError: a disk")


# -- admission --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 1, 2])
def test_no_memory_fails_the_request_that_needs_it_wherever_it_stands_in_the_queue(
    engine: Engine, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    resize = KVStore.resize

    def scarce(store: KVStore, n_slots: int, n_positions: int) -> None:
        if n_positions > 200:
            raise torch.OutOfMemoryError("no room")
        resize(store, n_slots, n_positions)

    monkeypatch.setattr(KVStore, "resize", scarce)
    prompts = [OTHER, OTHER]
    prompts.insert(place, [5] * 300)
    requests = [engine.submit(prompt, **NEIGHBOUR) for prompt in prompts]
    drain(engine, *requests)
    with pytest.raises(ripple.RequestError, match="no room could be made for its keys: OutOfMemoryError"):
        requests.pop(place).result()
    assert [outcome(request) for request in requests] == [tokens(engine, OTHER, **NEIGHBOUR)] * 2
    assert engine._admission.n_held == 0


def test_no_memory_for_a_history_fails_the_request_that_wants_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scarce(history: KLHistory, length: int) -> KLEntry:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(KLHistory, "open", scarce)
    bad = engine.submit(PROMPT, **HOW | {"decoder": "klass"})
    assert_alone_fails(engine, bad, "no room could be made for its keys: OutOfMemoryError: no room")


@pytest.mark.parametrize("where", ["resize", "decode"])
def test_an_interrupt_during_admission_loses_nobody(
    engine: Engine, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any) -> Any:
        monkeypatch.undo()
        raise KeyboardInterrupt

    first = engine.submit(PROMPT, **HOW)
    good = engine.submit(OTHER, **NEIGHBOUR)
    if where == "resize":
        monkeypatch.setattr(KVStore, where, interrupted)
    else:
        first.conversation = (interrupted() for _ in "x")  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        engine.tick()
    drain(engine, first, good)
    assert outcome(good) == tokens(engine, OTHER, **NEIGHBOUR)
    assert (first.error is None) == (where == "resize") and engine._admission.n_held == 0


# -- the queue --------------------------------------------------------------------------------------------


def test_a_request_is_queued_once(engine: Engine) -> None:
    request = engine.submit(PROMPT, **HOW)
    with pytest.raises(ripple.RippleError, match=f"Request {request.number} has been queued before"):
        engine.enqueue(request)
    drain(engine, request)
    again = engine.prepare(OTHER, **NEIGHBOUR)
    tickets = [engine.thread.submit(again) for _ in range(2)]
    assert tickets[0].result(timeout=30).token_ids
    with pytest.raises(ripple.RippleError, match=f"Request {again.number} has been queued before"):
        tickets[1].result(timeout=30)


def test_a_queue_that_fills_up_while_it_is_handed_over_does_not_end_the_thread(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever submits at that moment is counted together with those who are between inbox and queue."""
    thread, enqueue = engine.thread, engine.enqueue
    late: list[threading.Thread] = []
    said: list[object] = []

    def submit() -> None:
        try:
            said.append(thread.submit(engine.prepare([5], **HOW)).result(timeout=30).finish)
        except ripple.QueueFull:
            said.append("full")

    def slowly(request: ripple.Request) -> None:
        late.append(threading.Thread(target=submit))
        late[-1].start()
        late[-1].join(0.02)
        enqueue(request)

    with thread._wake:  # four are in the inbox before the thread looks
        tickets = [thread.submit(engine.prepare([i], **HOW)) for i in range(4)]
        monkeypatch.setattr(engine, "enqueue", slowly)
    assert all(ticket.result(timeout=30).is_full for ticket in tickets)
    monkeypatch.undo()
    for one in late:
        one.join(30)
    assert thread.is_alive and thread.error is None and len(said) == len(late) >= 4
