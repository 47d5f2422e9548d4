"""Caches that follow the canvas position by position: where they must equal no cache, or being alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import ripple
from ripple.caches import Cache
from ripple.decoders import DECODERS
from ripple.engine.layout import AskLayout

PROMPT = [7, 3, 11, 20]
KEEP = ripple.DualCache(keep_prompt=True)
SMALL_D2 = ripple.D2Cache(masks=6, rest=0.1, sigma=3.0)
POLICIES = (KEEP, ripple.DkvCache(), SMALL_D2)


def outcome(result: ripple.Result) -> tuple[list[int], int, int]:
    return result.token_ids, result.nfe_normal, result.nfe_lookahead


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize(
    "policy", [ripple.DkvCache(refresh=1), ripple.D2Cache(refresh=1), ripple.D2Cache(masks=99, rest=1.0)]
)
def test_with_everything_recomputed_it_equals_no_cache(
    engine: ripple.Engine, name: str, policy: Cache
) -> None:
    how: dict[str, Any] = {"decoder": name, "length": 20, "block": 8}
    assert outcome(engine.generate(PROMPT, cache=policy, **how)) == outcome(engine.generate(PROMPT, **how))


@pytest.mark.parametrize("name", DECODERS)
def test_a_kept_prompt_changes_nothing_before_the_second_block(engine: ripple.Engine, name: str) -> None:
    how: dict[str, Any] = {"decoder": name, "length": 12, "block": 12}
    kept, dual = (engine.generate(PROMPT, cache=cache, **how) for cache in (KEEP, "dual"))
    assert outcome(kept) == outcome(dual)


def test_a_kept_prompt_changes_nothing_when_all_of_it_is_read_anyway(
    engines: dict[str, ripple.Engine],
) -> None:
    """Dream reads a block's first position from the row before it: a prompt of one token is always live."""
    how: dict[str, Any] = {"decoder": "rps", "length": 24, "block": 6}
    kept, dual = (engines["dream"].generate([9], cache=cache, **how) for cache in (KEEP, "dual"))
    assert outcome(kept) == outcome(dual)


def test_a_kept_prompt_is_left_out_of_every_later_opening(engine: ripple.Engine) -> None:
    request = engine.submit(PROMPT, ripple.Options(ripple.Confidence(), 16, 4, KEEP))
    engine.tick()
    n_openings = 0
    while request.finish is None:
        if request.is_refresh:
            row = request.build_layout("packed").base.row
            assert row.pos.tolist() == list(range(4 - engine.model.config.logit_shift, 20))
            assert row.slot == row.store_slot == request.slot
            n_openings += 1
        engine.tick()
    assert n_openings == 3


@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_fills_every_canvas(engine: ripple.Engine, name: str) -> None:
    shapes = ((13, 5, 0.0), (16, 16, 0.8), (7, 1, 0.0))
    cases = [(*shape, policy) for shape in shapes for policy in POLICIES]
    lengths, blocks, temperatures, policies = map(list, zip(*cases, strict=True))
    results = engine.generate(
        [PROMPT[:1]] * len(cases), decoder=name, length=lengths, block=blocks, temperature=temperatures,
        cache=policies, seed=4,
    )  # fmt: skip
    for case, result in zip(cases, results, strict=True):
        assert len(result.token_ids) == case[0], case
        assert engine.model.config.mask_id not in result.token_ids, case


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
@pytest.mark.parametrize("lookahead", ["packed", "batched"])
def test_a_request_decodes_alike_alone_and_in_company(
    engine: ripple.Engine, policy: Cache, lookahead: str
) -> None:
    rng = np.random.default_rng(1)
    requests = [
        (
            rng.integers(0, 40, size=2 + i % 5).tolist(),
            ripple.Options(
                ripple.decoder(name), 12 + 3 * (i % 4), 4 + i % 5, policy, lookahead, i,
                temperature=float(i % 3 == 2),
            ),
        )
        for i, name in enumerate([*DECODERS, "rps", "lopa/diffucoder", "rps/dream"])
    ]  # fmt: skip
    alone = []
    for prompt, settings in requests:
        request = engine.submit(prompt, settings)
        while request.finish is None:
            engine.tick()
        alone.append(outcome(request.result()))
    together = [engine.submit(prompt, settings) for prompt, settings in requests]
    while any(request.finish is None for request in together):
        engine.tick()
    assert [outcome(request.result()) for request in together] == alone


def test_what_ifs_leave_no_keys(engine: ripple.Engine) -> None:
    """An exact lookahead runs each branch on the request's own slot; what stays there is the base's."""
    settings = ripple.Options(ripple.Lopa(k=1), 24, 12, ripple.DkvCache(refresh=None), "batched")
    request = engine.submit(PROMPT, settings)
    n_checked = 0
    engine.tick()
    while request.finish is None:
        assert request.ask is not None
        if request.ask.branches and not request.is_refresh:
            reading = request.build_layout("batched")
            store = engine.runner.store
            engine.runner.hidden_states([reading])
            after = store.k[:, request.slot].clone(), store.v[:, request.slot].clone()
            engine.runner.hidden_states([AskLayout(reading.base, [], None, None)])
            for actual, name in zip(after, "kv", strict=True):
                n_keys = len(request.canvas.ids)
                expected = getattr(store, name)[:, request.slot]
                torch.testing.assert_close(actual[:, :, :n_keys], expected[:, :, :n_keys], atol=1e-5, rtol=0)
            n_checked += 1
        engine.tick()
    assert n_checked >= 2


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
@pytest.mark.parametrize("seed", range(3))
def test_rps_without_feasible_pivots_is_confidence_decoding(
    engine: ripple.Engine, policy: Cache, seed: int
) -> None:
    prompt = np.random.default_rng(seed).integers(0, 40, size=5).tolist()
    how: dict[str, Any] = {"length": 24, "block": 8, "cache": policy}
    plain = engine.generate(prompt, decoder="confidence", **how)
    assert outcome(engine.generate(prompt, decoder=ripple.RPS(r=1.0), **how)) == outcome(plain)


@pytest.mark.parametrize("policy", [ripple.DkvCache(), SMALL_D2], ids=lambda p: p.name)
def test_fewer_rows_are_recomputed_as_tokens_settle(engine: ripple.Engine, policy: Cache) -> None:
    settings = ripple.Options(ripple.Default(), 24, 12, policy)
    request, n_live = engine.submit(list(range(30)), settings), []
    engine.tick()
    while request.finish is None:
        if not request.is_refresh:
            n_live.append(len(request.build_layout("packed").base.row.pos))
        engine.tick()
    assert max(n_live) < 54 and n_live[-1] < n_live[0]


def test_a_window_that_refreshes_at_every_forward_is_no_cache(engine: ripple.Engine) -> None:
    prompts = [np.random.default_rng(s).integers(0, 40, size=5).tolist() for s in range(8)]
    for name in DECODERS:
        plain = engine.generate(prompts, decoder=name, length=24, block=8)
        fresh = engine.generate(prompts, decoder=name, length=24, block=8, cache="slide:refresh=1")
        assert [(a.token_ids, a.nfe) for a in plain] == [(b.token_ids, b.nfe) for b in fresh], name
