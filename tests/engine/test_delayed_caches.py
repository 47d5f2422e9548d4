"""Caches that follow the canvas position by position: where they must equal no cache, or being alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import ripple
from ripple.caches import Cache
from ripple.decoders import DECODERS
from ripple.engine.plan import Reading

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
    session = engine.submit(PROMPT, ripple.Settings(ripple.Confidence(), 16, 4, KEEP))
    engine.tick()
    n_openings = 0
    while session.finish is None:
        if session.opens:
            strip = session.lay_out(packed=True).base.strip
            assert strip.pos.tolist() == list(range(4 - engine.model.config.logit_shift, 20))
            assert strip.slot == strip.keeps == session.slot
            n_openings += 1
        engine.tick()
    assert n_openings == 3


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
@pytest.mark.parametrize("length, block, temperature", [(13, 5, 0.0), (16, 16, 0.8), (7, 1, 0.0)])
def test_every_decoder_fills_every_canvas(
    engine: ripple.Engine, name: str, policy: Cache, length: int, block: int, temperature: float
) -> None:
    how: dict[str, Any] = {"length": length, "block": block, "temperature": temperature, "seed": 4}
    result = engine.generate(PROMPT[:1], decoder=name, cache=policy, **how)
    assert len(result.token_ids) == length
    assert engine.model.config.mask_id not in result.token_ids


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
@pytest.mark.parametrize("lookahead", ["packed", "batched"])
def test_a_request_decodes_alike_alone_and_in_company(
    engine: ripple.Engine, policy: Cache, lookahead: str
) -> None:
    rng = np.random.default_rng(1)
    requests = [
        (
            rng.integers(0, 40, size=2 + i % 5).tolist(),
            ripple.Settings(
                ripple.decoder(name), 12 + 3 * (i % 4), 4 + i % 5, policy, lookahead, i,
                temperature=float(i % 3 == 2),
            ),
        )
        for i, name in enumerate([*DECODERS, "rps", "lopa/diffucoder", "rps/dream"])
    ]  # fmt: skip
    alone = []
    for prompt, settings in requests:
        session = engine.submit(prompt, settings)
        while session.finish is None:
            engine.tick()
        alone.append(outcome(session.result()))
    together = [engine.submit(prompt, settings) for prompt, settings in requests]
    while any(session.finish is None for session in together):
        engine.tick()
    assert [outcome(session.result()) for session in together] == alone


def test_what_ifs_leave_no_keys(engine: ripple.Engine) -> None:
    """An exact lookahead runs each branch on the request's own slot; what stays there is the base's."""
    settings = ripple.Settings(ripple.Lopa(k=1), 24, 12, ripple.DkvCache(refresh=None), "batched")
    session = engine.submit(PROMPT, settings)
    n_checked = 0
    engine.tick()
    while session.finish is None:
        assert session.ask is not None
        if session.ask.branches and not session.opens:
            reading = session.lay_out(packed=False)
            store = engine._store
            engine.hidden_states([reading])
            after = store.k[:, session.slot].clone(), store.v[:, session.slot].clone()
            engine.hidden_states([Reading(reading.base, [], None, None)])
            for found, name in zip(after, "kv", strict=True):
                n_keys = len(session.canvas.ids)
                expected = getattr(store, name)[:, session.slot]
                torch.testing.assert_close(found[:, :, :n_keys], expected[:, :, :n_keys], atol=1e-5, rtol=0)
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
    settings = ripple.Settings(ripple.Default(), 24, 12, policy)
    session, n_live = engine.submit(list(range(30)), settings), []
    engine.tick()
    while session.finish is None:
        if not session.opens:
            n_live.append(len(session.lay_out(packed=True).base.strip.pos))
        engine.tick()
    assert max(n_live) < 54 and n_live[-1] < n_live[0]
