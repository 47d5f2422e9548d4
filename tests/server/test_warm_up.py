"""What a server does before its first client comes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import ripple
from ripple.engine.step_curve import StepCurve
from ripple.server.failures import Refusal
from ripple.server.options import ServerOptions
from ripple.server.schema import CompletionRequest
from ripple.server.service import RESERVED_PROMPT, Service


@pytest.mark.parametrize("has_graphs", [False, True])
@pytest.mark.parametrize("cache", ["none", "dual"])
def test_room_for_a_batch_of_keys_is_made_where_graphs_depend_on_it(
    folders: dict[str, Path], has_graphs: bool, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ripple.load(folders["llada"], device="cpu", max_batch=3)
    options = ripple.Options("confidence", length=16, block=8, cache=cache)
    service = Service(engine, "small", options, ServerOptions(max_batch=3))
    most, store = engine.model.config.max_positions, engine.runner.store
    assert most < RESERVED_PROMPT + 16, "no request is longer than the model allows"
    try:
        with monkeypatch.context() as patch:
            patch.setattr(type(engine.model), "has_static_shapes", has_graphs)
            service.reserve()
        if has_graphs and cache == "dual":
            place = store.k.data_ptr()
            service.warm_up()
            assert len(engine.generate([[1] * n for n in (3, 700, most - 16)], options)) == 3
            assert store.k.data_ptr() == place and store.k.shape[1::2] == (3, most)
        else:
            assert store.k.numel() == 0
    finally:
        service.close()


@pytest.mark.parametrize("budget", [None, 0.5])
def test_what_a_forward_costs_is_measured_before_a_client_comes_or_never(
    folders: dict[str, Path], budget: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[StepCurve] = []

    def measure(runner: object) -> StepCurve:
        measured.append(StepCurve({32: 1.0}))
        return measured[0]

    monkeypatch.setattr(StepCurve, "measure", measure)
    engine = ripple.load(folders["llada"], device="cpu", max_batch=3)
    options = ripple.Options("confidence", length=16, lookahead_budget=budget)
    service = Service(engine, "small", options, ServerOptions(max_batch=3))

    async def ask() -> None:
        body = b'{"prompt": [1, 2], "ripple": {"lookahead_budget": 0.25}}'
        _, (request,) = await service.prepare(CompletionRequest, body)
        (ticket,) = service.submit([request])
        await ticket.finished()
        assert request.options.lookahead_budget == 0.25 and ticket.result().n_limited

    try:
        service.warm_up()
        assert len(measured) == (budget is not None)
        if budget is None:
            with pytest.raises(Refusal, match="started with --lookahead-budget") as told:
                asyncio.run(ask())
            assert told.value.param == "ripple.lookahead_budget"
        else:
            asyncio.run(ask())
        assert len(measured) == (budget is not None)
    finally:
        service.close()
