"""A failing part ends its own request with a clear error, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import ripple
from ripple.canvas import Canvas, Window
from ripple.decoders.base import Conversation
from ripple.engine.readback import TickStats
from ripple.engine.runner import DeviceRunner
from ripple.look import Ask

PROMPT, OTHER = [3, 4, 5], [9, 8, 7, 6]
# A neighbour whose keys are refreshed every second forward: a lost or repeated step changes its tokens.
NEIGHBOUR: dict[str, Any] = {
    "decoder": ripple.RPS(tau_pivot=0.3), "length": 24, "block": 8, "cache": "dual:refresh=2",
}  # fmt: skip


class Raising(ripple.Confidence):
    """Raises after three asks."""

    error: BaseException = KeyError("after three asks")

    def decode(self, canvas: Canvas) -> Conversation:
        talk = super().decode(canvas)
        ask = next(talk)
        for _ in range(3):
            ask = talk.send((yield ask))
        raise self.error


def drain(engine: ripple.Engine, *requests: ripple.Request) -> None:
    while any(request.finish is None for request in requests):
        engine.tick()
    assert engine.n_live == engine.n_waiting == 0


def tokens(engine: ripple.Engine, prompt: list[int], **how: Any) -> tuple[list[int], int, int]:
    result = engine.generate(prompt, **how)
    return result.token_ids, result.nfe, result.canvases


def outcome(request: ripple.Request) -> tuple[list[int], int, int]:
    result = request.result()
    return result.token_ids, result.nfe, result.canvases


@pytest.mark.parametrize(
    "cache", ["none", "prefix", "dual:refresh=2", "dkv", "d2:masks=4", "dual:keep_prompt=true"]
)
@pytest.mark.parametrize("decoder", ["rps", "klass", "wino", "lopa"])
def test_a_raising_decoder_leaves_its_neighbours_their_tokens(
    engine: ripple.Engine, cache: str, decoder: str
) -> None:
    how = NEIGHBOUR | {"cache": cache, "decoder": decoder}
    alone = tokens(engine, OTHER, **how)
    bad = engine.submit(PROMPT, decoder=Raising(tau=1.0), length=16, block=8, cache="dual")
    good = engine.submit(OTHER, **how)
    drain(engine, bad, good)
    assert outcome(good) == alone
    with pytest.raises(
        ripple.RequestError, match=r"decoder 'confidence', after forward 3: .*KeyError"
    ) as told:
        bad.result()
    assert f"Request {bad.number}," in str(told.value) and isinstance(told.value.__cause__, KeyError)


def test_an_interrupt_inside_a_decoder_ends_that_request_and_is_passed_on(engine: ripple.Engine) -> None:
    class Interrupted(Raising):
        error = KeyboardInterrupt()

    alone = tokens(engine, OTHER, **NEIGHBOUR)
    bad = engine.submit(PROMPT, decoder=Interrupted(tau=1.0), length=16, block=8)
    good = engine.submit(OTHER, **NEIGHBOUR)
    with pytest.raises(KeyboardInterrupt):
        drain(engine, bad, good)
    drain(engine, bad, good)
    assert outcome(good) == alone
    with pytest.raises(ripple.RequestError, match="was interrupted"):
        bad.result()


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error",
    [SystemExit("bye"), GeneratorExit(), asyncio.CancelledError(), Unspeakable()],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_decoder_raises_is_its_requests_own(engine: ripple.Engine, error: BaseException) -> None:
    class Leaving(Raising):
        pass

    Leaving.error = error
    alone = tokens(engine, OTHER, **NEIGHBOUR)
    bad = engine.submit(PROMPT, decoder=Leaving(tau=1.0), length=16, block=8)
    good = engine.submit(OTHER, **NEIGHBOUR)
    drain(engine, bad, good)
    assert outcome(good) == alone
    with pytest.raises(ripple.RequestError, match=f"the decoder raised {type(error).__name__}"):
        bad.result()


def test_whatever_a_runner_raises_ends_the_requests_of_that_tick_and_not_the_engine(
    engine: ripple.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(runner: DeviceRunner, work: Any) -> Any:
        raise LookupError("a rank is gone")

    request = engine.submit(PROMPT, length=16, block=8, cache="dual")
    monkeypatch.setattr(DeviceRunner, "run", broken)
    drain(engine, request)
    with pytest.raises(ripple.RequestError, match="the forward failed: LookupError: a rank is gone"):
        request.result()
    monkeypatch.undo()
    assert engine._admission.n_held == 0 and engine.generate(OTHER, **NEIGHBOUR).is_full


def test_an_answer_that_cannot_be_cut_out_is_its_requests_own(
    engine: ripple.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = TickStats.answer

    def broken(stats: TickStats, number: int, layout: Any, n_probes: int, top: int) -> Any:
        if layout.base.row.n_keys == len(PROMPT) + 16:
            raise TypeError("no such row")
        return answer(stats, number, layout, n_probes, top)

    alone = tokens(engine, OTHER, **NEIGHBOUR)
    bad, good = engine.submit(PROMPT, length=16, block=8), engine.submit(OTHER, **NEIGHBOUR)
    monkeypatch.setattr(TickStats, "answer", broken)
    drain(engine, bad, good)
    assert outcome(good) == alone
    with pytest.raises(ripple.RequestError, match="TypeError: no such row"):
        bad.result()


@pytest.mark.parametrize("cache", ["dual:refresh=2", "dkv", "d2:masks=4", "prefix"])
@pytest.mark.parametrize("decoder", ["rps", "klass", "wino"])
@pytest.mark.parametrize("where", ["hidden", "logits", "wait"])
def test_an_interrupted_tick_can_be_repeated(
    engine: ripple.Engine, cache: str, decoder: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in a forward, in statistics or while waiting: the ask is run again, with the same answer."""
    how = NEIGHBOUR | {"cache": cache, "decoder": decoder}
    alone = tokens(engine, OTHER, **how)
    request, n_calls = engine.submit(OTHER, **how), 0
    owner: Any = engine.runner._readback if where == "wait" else engine.model
    original = getattr(owner, where)

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        value = original(*args, **kwargs)
        if n_calls % 3 == 0:
            raise KeyboardInterrupt
        return value

    monkeypatch.setattr(owner, where, interrupted)
    n_interrupts = 0
    while request.finish is None:
        try:
            engine.tick()
        except KeyboardInterrupt:
            n_interrupts += 1
    assert n_interrupts >= 2 and outcome(request) == alone


def test_a_failing_forward_ends_the_requests_in_it_and_no_other(
    engine: ripple.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = tokens(engine, OTHER, **NEIGHBOUR)
    good = engine.submit(OTHER, **NEIGHBOUR)
    engine.tick()
    long = [engine.submit([5] * 300, decoder="confidence", length=16, cache="none") for _ in range(2)]
    hidden = engine.model.hidden

    def broken(inputs: Any, store: Any = None) -> torch.Tensor:
        if inputs.n_live > 200:
            raise torch.OutOfMemoryError("no memory for 300 positions\nand more")
        return hidden(inputs, store)

    monkeypatch.setattr(engine.model, "hidden", broken)
    drain(engine, good, *long)
    assert outcome(good) == alone
    for request in long:
        with pytest.raises(
            ripple.RequestError, match="forward 1: the forward failed: OutOfMemoryError: no memory"
        ):
            request.result()


def test_a_failure_in_statistics_ends_the_request_it_belongs_to(
    engine: ripple.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [tokens(engine, OTHER, **NEIGHBOUR | {"decoder": name}) for name in ("rps", "klass", "wino")]
    bad = engine.submit(PROMPT, decoder=ripple.EB(proxy="margin"), length=16, block=8, seed=7)
    good = [engine.submit(OTHER, **NEIGHBOUR | {"decoder": name}) for name in ("rps", "klass", "wino")]
    reduce_tick, n_calls = ripple.engine.runner.reduce_tick, 0

    def broken(model: Any, hidden: Any, work: Any, history: Any = None) -> Any:
        nonlocal n_calls
        n_calls += 1
        if n_calls > 4 and any(one.top == 2 for one in work):  # EB's margin wants two tokens
            raise RuntimeError("statistics")
        return reduce_tick(model, hidden, work, history)

    monkeypatch.setattr("ripple.engine.runner.reduce_tick", broken)
    drain(engine, bad, *good)
    assert [outcome(request) for request in good] == alone
    with pytest.raises(ripple.RequestError, match="forward 5: the forward failed: RuntimeError: statistics"):
        bad.result()


def test_logits_that_are_not_finite_end_the_request_they_belong_to(
    engine: ripple.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = tokens(engine, OTHER, **NEIGHBOUR)
    good, bad = engine.submit(OTHER, **NEIGHBOUR), engine.submit(PROMPT, decoder="klass", length=16, block=8)
    run = DeviceRunner._hidden_states

    def poisoned(self: DeviceRunner, layouts: Any) -> Any:
        states, errors = run(self, layouts)
        for layout in layouts:
            if layout.base.row.n_keys == len(PROMPT) + 16:
                states[layout.base.rows] = float("nan")
        return states, errors

    monkeypatch.setattr(DeviceRunner, "_hidden_states", poisoned)
    drain(engine, good, bad)
    assert outcome(good) == alone
    with pytest.raises(ripple.RequestError, match="forward 1: the model returned logits that are not finite"):
        bad.result()


def test_a_failing_cache_policy_ends_its_request(engine: ripple.Engine) -> None:
    class Broken(ripple.DualCache):
        def step_positions(self, state: Any) -> Any:
            raise ZeroDivisionError("no positions")

    alone = tokens(engine, OTHER, **NEIGHBOUR)
    bad = engine.submit(PROMPT, decoder="default", length=16, block=8, cache=Broken())
    good = engine.submit(OTHER, **NEIGHBOUR)
    drain(engine, bad, good)
    assert outcome(good) == alone
    with pytest.raises(ripple.RequestError, match="forward 2: the cache 'dual' raised ZeroDivisionError"):
        bad.result()


# -- contracts of third-party decoders ----------------------------------------------------------------------


def asks(make: Callable[[Canvas], Any]) -> ripple.Decoder:
    """A decoder that opens its first block properly and then yields something else."""

    class Asking(ripple.Confidence):
        def decode(self, canvas: Canvas) -> Conversation:
            window = next(canvas.windows())
            answer = yield Ask(window)
            canvas.commit(answer.base.pos[:1], answer.base.token[:1], answer.base.p[:1], "standard")
            yield make(canvas)

    return Asking()


WINDOW = Window(3, 11)
BROKEN_ASKS: list[tuple[Callable[[Canvas], Any], str]] = [
    (lambda c: None, "must yield an Ask, got NoneType"),
    (lambda c: "ask", "must yield an Ask, got str"),
    (lambda c: Ask((3, 11)), r"window must be a Window, got \(3, 11\)"),  # type: ignore[arg-type]
    (lambda c: Ask(Window(0, 8)), "window 0 to 8 does not lie in the response, 3 to 19"),
    (lambda c: Ask(Window(11, 20)), "window 11 to 20 does not lie"),
    (lambda c: Ask(Window(8, 8)), "window 8 to 8 does not lie"),
    (lambda c: Ask(Window(3, 4)), "holds no masked position"),
    (lambda c: Ask(WINDOW, (((12, 1),),)), "edits position 12, which is not masked in 3 to 11"),
    (lambda c: Ask(WINDOW, (((3, 1),),)), "edits position 3, which is not masked"),
    (lambda c: Ask(WINDOW, (((5, 1), (5, 2)),)), "edits a position twice"),
    (lambda c: Ask(WINDOW, (((5, 64),),)), "writes token 64"),
    (lambda c: Ask(WINDOW, (((5, c.mask_id),),)), "which is no token"),
    (lambda c: Ask(WINDOW, ((),) * 257), "may have 256 branches, got 257"),
    (lambda c: Ask(WINDOW, probes=((0, 12, 1),)), "probe names position 12"),
    (lambda c: Ask(WINDOW, probes=((1, 5, 1),)), "probe names canvas 1; there are 0 to 0"),
    (lambda c: Ask(WINDOW, (((5, 1),),), ((1, 5, 1),)), "probe names position 5"),
    (lambda c: Ask(WINDOW, probes=((0, 5, -1),)), "probe names token -1"),
    (lambda c: Ask(WINDOW, shadow=(5,)), "Shadow positions must be revealed ones"),
    (lambda c: Ask(WINDOW, shadow=(12,)), "Shadow positions must be revealed ones"),
    (lambda c: Ask(Window(5, 11), reread=True, next_token=True), "reads the window's first position alone"),
    (lambda c: Ask(WINDOW, probes=((0, p, 1) for p in (5, 6))), "probes must be a tuple, got generator"),  # type: ignore[arg-type]
    (lambda c: Ask(WINDOW, (e for e in [((5, 1),)])), "branches must be a tuple"),  # type: ignore[arg-type]
    (lambda c: Ask(WINDOW, (iter([(5, 1)]),)), "branch must be a tuple of edits"),  # type: ignore[arg-type]
    (lambda c: Ask(WINDOW, shadow=iter((3,))), "shadow must be a tuple"),  # type: ignore[arg-type]
    (lambda c: Ask(WINDOW, ahead=np.ones(3)), "ahead must be true or false"),  # type: ignore[arg-type]
    (lambda c: Ask(WINDOW, (((5, 1.5),),)), "must be whole numbers, got 1.5"),  # type: ignore[arg-type]
    (lambda c: Ask(WINDOW, probes=((0, 5, "1"),)), "must be whole numbers, got '1'"),  # type: ignore[arg-type]
    (lambda c: Ask(WINDOW, adopted=0.5), "must be whole numbers, got 0.5"),  # type: ignore[arg-type]
    (lambda c: Ask(WINDOW, adopted=1), "adopted must be a canvas of the previous ask, 0 to 0, got 1"),
]


@pytest.mark.parametrize("make, sentence", BROKEN_ASKS)
def test_a_broken_ask_is_an_error_of_its_request(
    engine: ripple.Engine, make: Callable[[Canvas], Any], sentence: str
) -> None:
    alone = tokens(engine, OTHER, **NEIGHBOUR)
    bad = engine.submit(PROMPT, decoder=asks(make), length=16, block=8, cache="dual")
    good = engine.submit(OTHER, **NEIGHBOUR)
    drain(engine, bad, good)
    assert outcome(good) == alone
    with pytest.raises(ripple.RequestError, match=sentence):
        bad.result()


def test_a_wrong_commit_is_an_error_of_its_request(engine: ripple.Engine) -> None:
    class Twice(ripple.Confidence):
        def decode(self, canvas: Canvas) -> Conversation:
            answer = yield Ask(next(canvas.windows()))
            for _ in range(2):
                canvas.commit(answer.base.pos[:1], answer.base.token[:1], answer.base.p[:1], "standard")

    with pytest.raises(ripple.RequestError, match=r"after forward 1: .*already holds a token"):
        engine.generate(PROMPT, decoder=Twice(), length=16, block=8)


def test_a_decoder_that_returns_with_masks_left_is_incomplete(engine: ripple.Engine) -> None:
    class Early(ripple.Confidence):
        def decode(self, canvas: Canvas) -> Conversation:
            answer = yield Ask(next(canvas.windows()))
            canvas.commit(answer.base.pos[:2], answer.base.token[:2], answer.base.p[:2], "standard")

    result = engine.generate(PROMPT, decoder=Early(), length=16, block=8)
    assert result.finish == "incomplete" and not result.is_full and len(result.new_tokens) <= 2
    nothing = engine.generate(PROMPT, decoder=None_(), length=16, block=8)
    assert nothing.finish == "incomplete" and nothing.new_tokens == [] and nothing.nfe == 0


class None_(ripple.Confidence):
    """Asks nothing."""

    def decode(self, canvas: Canvas) -> Conversation:
        return
        yield


def test_raising_before_the_first_ask_loses_neither_request_nor_slot(engine: ripple.Engine) -> None:
    class Stillborn(ripple.Confidence):
        def decode(self, canvas: Canvas) -> Conversation:
            raise ValueError("no first ask")
            yield

    for _ in range(3):
        request = engine.submit(PROMPT, decoder=Stillborn(), length=16, block=8, cache="dual")
        drain(engine, request)
        with pytest.raises(
            ripple.RequestError, match=r"before its first forward: .*ValueError: no first ask"
        ):
            request.result()
    assert engine._admission.n_held == 0


def test_several_outcomes_come_with_the_error_of_one(engine: ripple.Engine) -> None:
    decoders = ["confidence", Raising(tau=1.0), "rps"]
    with pytest.raises(ripple.RequestError, match="after forward 3") as told:
        engine.generate([PROMPT] * 3, decoder=decoders, length=16, block=8)
    one, two, three = told.value.results or []
    assert isinstance(two, ripple.RequestError)
    assert [one.token_ids, three.token_ids] == [
        engine.generate(PROMPT, decoder=name, length=16, block=8).token_ids for name in ("confidence", "rps")
    ]


def test_a_request_cancelled_by_its_own_listener_ends_there(engine: ripple.Engine) -> None:
    request = engine.prepare(PROMPT, decoder="default", length=16, block=8)
    kinds: list[str] = []

    def leave(event: ripple.Event) -> None:
        kinds.append(event.kind)
        if event.kind == "commit":
            request.cancel()

    request.listen(leave)
    engine.enqueue(request)
    drain(engine, request)
    assert request.result().finish == "cancelled" and kinds.count("commit") == 1 and kinds[-1] == "end"


def test_asserts_are_not_needed(engine: ripple.Engine) -> None:
    """What third parties can do wrong is raised, so it is refused under `python -O` too."""
    canvas = Canvas(np.array([1]), 4, 4, 63, vocab_size=64)
    with pytest.raises(ripple.RippleError):
        canvas.commit(np.array([0]), np.array([1]), np.ones(1, np.float32), "standard")
    with pytest.raises(ripple.RippleError, match="still running"):
        engine.prepare(PROMPT, length=8).result()
