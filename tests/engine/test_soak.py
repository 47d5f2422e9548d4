"""Thousands of random requests in random company equal their solitary runs, whatever happens around them.

Requests differ in prompt, decoder, cache, lookahead, canvas and temperature. Some are cancelled after a
number of forwards, some have a decoder that raises or leaves early, and now and then a tick is interrupted
in its forward.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import random
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import ripple
from ripple.canvas import Canvas
from ripple.decoders import DECODERS, PRESETS
from ripple.decoders.base import Conversation
from ripple.engine.engine import Engine

N_ROUNDS, PER_ROUND = 12, 100
CACHES = (
    "none", "none", "prefix", "dual", "dual:refresh=2", "dual:keep_prompt=true", "dkv", "dkv:refresh=3",
    "d2:masks=5", "slide", "slide:refresh=3", "prefix:match_fast_dllm_first=true",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Ending(ripple.Decoder):
    """Follows another decoder and raises, or returns, instead of its n-th ask."""

    name = "ending"
    paper = "a test"

    inner: Any = None
    n: int = 0
    raises: bool = True

    @property
    def wants(self) -> ripple.Wants:
        return self.inner.wants

    def decode(self, canvas: Canvas) -> Conversation:
        talk = self.inner.decode(canvas)
        ask = next(talk, None)
        for _ in range(self.n):
            if ask is None:
                return
            answer = yield ask
            try:
                ask = talk.send(answer)
            except StopIteration:
                return
        if self.raises:
            raise OSError("injected")


@dataclasses.dataclass(frozen=True)
class Plan:
    """One request, and after how many forwards it is cancelled."""

    prompt: list[int]
    options: ripple.Options
    cancel_at: int | None


def plans(rng: random.Random, engine: Engine) -> Iterator[Plan]:
    names = [
        *DECODERS,
        *PRESETS,
        "eb:proxy=margin,gamma=1",
        "rps:standard=klass",
        "rps:tau_pivot=0.3",
        "rps:k_max=3",
    ]
    for _ in range(PER_ROUND):
        length = rng.randint(1, 22)
        options = ripple.Options(
            decoder=rng.choice(names),
            length=length,
            block=rng.randint(1, length),
            cache=rng.choice(CACHES),
            lookahead=rng.choice(("packed", "packed", "thin", "batched")),
            seed=rng.randrange(100),
            temperature=rng.choice((0.0, 0.0, 0.9)),
            stop_at_end=rng.random() < 0.2,
            trace=rng.random() < 0.1,
        )
        fate, decoder = rng.random(), engine.decoder_of(options)
        if fate < 0.15:
            ending = Ending(decoder, rng.randint(0, 6), rng.random() < 0.7)
            options = dataclasses.replace(options, decoder=ending)
        prompt = [rng.randrange(40) for _ in range(rng.randint(1, 12))]
        yield Plan(prompt, options, rng.randint(0, 6) if 0.15 <= fate < 0.3 else None)


def outcome(request: ripple.Request) -> tuple[Any, ...]:
    """Everything that must not depend on company."""
    if request.error is not None:
        return ("error", str(request.error).split(",", 1)[1], request.nfe)
    r = request.result()
    decisions = (
        "pos",
        "token",
        "cause",
        "nfe",
        "window",
        "pivot",
        "chosen",
        "finish",
    )  # p and entropy are rounded
    trace = [(e.kind, [e.data.get(name) for name in decisions]) for e in r.trace or []]
    return (r.token_ids, r.new_tokens, r.nfe_normal, r.nfe_lookahead, r.canvases, r.finish, r.causes, trace)


def run(engine: Engine, todo: list[Plan], rng: random.Random, at_once: int) -> list[ripple.Request]:
    """Decode the plans, so many at a time, joining in random order; interrupt a tick now and then."""
    requests = [engine.prepare(plan.prompt, plan.options) for plan in todo]
    waiting = list(zip(requests, todo, strict=True))
    rng.shuffle(waiting)
    live: list[tuple[ripple.Request, Plan]] = []
    interrupts = Interrupts(engine, rng)
    while waiting or live:
        while waiting and len(live) < at_once:
            live.append(waiting.pop())
            engine.enqueue(live[-1][0])
        for request, plan in live:
            if plan.cancel_at is not None and request.nfe >= plan.cancel_at:
                request.cancel()
        interrupts.arm(at_once > 1)
        with contextlib.suppress(KeyboardInterrupt):
            engine.tick()
        live = [(request, plan) for request, plan in live if request.finish is None]
    interrupts.disarm()
    return requests


class Interrupts:
    """Lets a forward raise KeyboardInterrupt after it has run, and so after it has stored keys."""

    def __init__(self, engine: Engine, rng: random.Random) -> None:
        self.model, self.rng, self.is_armed = engine.model, rng, False
        self.hidden = engine.model.hidden
        self.model.hidden = self.run  # type: ignore[method-assign]

    def arm(self, is_on: bool) -> None:
        self.is_armed = is_on and self.rng.random() < 0.05

    def run(self, *args: Any) -> Any:
        states = self.hidden(*args)
        if self.is_armed:
            self.is_armed = False
            raise KeyboardInterrupt
        return states

    def disarm(self) -> None:
        self.model.hidden = self.hidden  # type: ignore[method-assign]


@pytest.mark.parametrize("seed", range(N_ROUNDS))
def test_random_requests_in_random_company_equal_their_solitary_runs(
    engines: dict[str, ripple.Engine], family: str, seed: int
) -> None:
    engine = Engine(engines[family].model, max_batch=24, folder=engines[family].folder)
    rng = random.Random(f"{family} {seed}")
    todo = list(plans(rng, engine))
    alone = [outcome(request) for request in run(engine, todo, rng, 1)]
    together = run(engine, todo, rng, rng.choice((2, 5, 24)))
    wrong = [
        (plan, one, outcome(request))
        for plan, one, request in zip(todo, alone, together, strict=True)
        if outcome(request) != one
    ]
    assert not wrong, f"{len(wrong)} of {len(todo)}: {[w[0] for w in wrong]}"
    finishes = {one[5] if one[0] != "error" else "error" for one in alone}
    assert {"cancelled", "error", "length", "incomplete"} <= finishes | {"incomplete"}, finishes
    assert_nothing_is_left(engine, together)


def assert_nothing_is_left(engine: Engine, requests: list[ripple.Request]) -> None:
    """No slot, no history, no request is held once everybody has let go."""
    assert engine.n_live == engine.n_waiting == engine._admission.n_held == 0
    assert engine.runner._history.n_rows == 0
    held = [weakref.ref(request) for request in requests]
    requests.clear()
    gc.collect()
    assert not any(ref() for ref in held)
