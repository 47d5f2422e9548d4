"""Fast paths are equal to slow ones: cached, batched, streamed, packed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import ripple
from ripple.canvas import Ints
from ripple.decoders import DECODERS
from ripple.look import Look

PROMPT = [7, 3, 11, 20]
CACHES = ("none", "prefix", "dual")


def tokens_and_nfe(result: ripple.Result) -> tuple[list[int], int, int]:
    return result.token_ids, result.nfe_normal, result.nfe_lookahead


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("cache", [ripple.PrefixCache(refresh=1), ripple.DualCache(refresh=1)])
def test_a_cache_refreshed_at_every_step_equals_no_cache(
    engine: ripple.Engine, name: str, cache: ripple.caches.Cache
) -> None:
    plain = engine.generate(PROMPT, decoder=name, length=20, block=8)
    cached = engine.generate(PROMPT, decoder=name, length=20, block=8, cache=cache)
    assert tokens_and_nfe(cached) == tokens_and_nfe(plain)


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("lookahead", ["packed", "batched"])
def test_a_request_decodes_alike_alone_and_in_company(
    engine: ripple.Engine, cache: str, lookahead: str
) -> None:
    rng = np.random.default_rng(0)
    requests = [
        (rng.integers(0, 40, size=2 + i % 5).tolist(), name, 10 + 3 * (i % 4), 4 + i % 5, i)
        for i, name in enumerate(
            [*DECODERS, "rps/dream", "lopa/diffucoder", ripple.EB(gamma=1.0, proxy="margin")]
        )
    ]
    alone = [
        engine.generate(
            p, decoder=d, length=n, block=b, cache=cache, lookahead=lookahead, seed=s, temperature=s % 2
        )
        for p, d, n, b, s in requests
    ]
    requests = [
        engine.submit(
            p,
            ripple.Options(
                ripple.decoder(d) if isinstance(d, str) else d,
                n,
                b,
                ripple.caches.cache(cache),
                lookahead,
                s,
                temperature=float(s % 2),
            ),
        )
        for p, d, n, b, s in requests
    ]
    while any(request.finish is None for request in requests):
        engine.tick()
    for one, request in zip(alone, requests, strict=True):
        assert tokens_and_nfe(request.result()) == tokens_and_nfe(one)


def test_requests_that_join_later_change_nothing(engine: ripple.Engine) -> None:
    settings = ripple.Options(ripple.RPS(), 24, 8, ripple.DualCache())
    alone = engine.generate(PROMPT, decoder=ripple.RPS(), length=24, block=8, cache="dual")
    first = engine.submit(PROMPT, settings)
    engine.tick()
    engine.tick()
    second = engine.submit([9, 9, 2], settings)
    third = engine.submit(PROMPT, settings)
    engine.tick()
    second.cancel()
    while any(s.finish is None for s in (first, third)):
        engine.tick()
    assert first.result().token_ids == third.result().token_ids == alone.token_ids


@pytest.mark.parametrize("cache", CACHES)
def test_a_small_batch_limit_changes_nothing(engine: ripple.Engine, cache: str, monkeypatch: Any) -> None:
    prompts = [[i + 1, i + 2] for i in range(5)]
    wide = engine.generate(prompts, decoder="rps", length=16, block=8, cache=cache)
    monkeypatch.setattr(engine, "max_batch", 2)
    narrow = engine.generate(prompts, decoder="rps", length=16, block=8, cache=cache)
    assert [r.token_ids for r in narrow] == [r.token_ids for r in wide]


@pytest.mark.parametrize("name", [n for n in DECODERS if n != "glide"] + ["glide:slide=false"])
def test_packed_equals_exact_lookahead_on_a_frozen_context(engine: ripple.Engine, name: str) -> None:
    results = [
        engine.generate(PROMPT, decoder=name, length=24, block=8, cache="dual", lookahead=lookahead)
        for lookahead in ("packed", "batched")
    ]
    assert tokens_and_nfe(results[0]) == tokens_and_nfe(results[1])


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("off", [{"r": 1.0}, {"tau_pivot": 1.01}])
@pytest.mark.parametrize("seed", range(5))
def test_rps_without_feasible_pivots_is_confidence_decoding(
    engine: ripple.Engine, cache: str, off: dict[str, float], seed: int
) -> None:
    prompt = np.random.default_rng(seed).integers(0, 40, size=5).tolist()
    plain = engine.generate(prompt, decoder="confidence", length=24, block=8, cache=cache)
    searched = engine.generate(prompt, decoder=ripple.RPS(**off), length=24, block=8, cache=cache)
    assert (searched.token_ids, searched.nfe) == (plain.token_ids, plain.nfe)
    assert searched.nfe_lookahead == 0


@pytest.mark.parametrize("cache", CACHES)
def test_a_packed_anchor_decides_like_the_shared_one(engine: ripple.Engine, cache: str) -> None:
    shared, packed = (
        engine.generate(PROMPT, decoder=ripple.RPS(anchor=anchor), length=24, block=8, cache=cache)
        for anchor in ("shared", "packed")
    )
    assert tokens_and_nfe(packed) == tokens_and_nfe(shared)
    assert packed.canvases == shared.canvases + shared.nfe_lookahead


class ReversedRPS(ripple.RPS):
    """RPS that lists its candidates the other way round."""

    def _candidate_tokens(self, look: Look, pivot: int | None) -> Ints:
        return super()._candidate_tokens(look, pivot)[::-1]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_candidates_changes_nothing(engine: ripple.Engine, seed: int) -> None:
    prompt = np.random.default_rng(seed).integers(0, 40, size=5).tolist()
    usual = engine.generate(prompt, decoder=ripple.RPS(), length=24, block=8)
    other = engine.generate(prompt, decoder=ReversedRPS(), length=24, block=8)
    assert usual.nfe_lookahead > 0
    assert tokens_and_nfe(other) == tokens_and_nfe(usual)


@pytest.mark.parametrize("name", [n for n in DECODERS if n not in ("glide", "edit")])  # these hold or revise
def test_nfe_equals_standard_commits_and_each_forward_leads_to_one(engine: ripple.Engine, name: str) -> None:
    result = engine.generate(PROMPT, decoder=name, length=24, block=8, trace=True)
    causes = [e.data["cause"] for e in result.trace if e.kind == "commit"]
    standard = [cause for cause in causes if cause in ("standard", "fallback")]
    if name == "lopa":  # a branch may fill a block's last mask: that forward has no standard commit
        assert len(standard) <= result.nfe <= len(causes)
    else:
        assert len(standard) == result.nfe
    kinds = [e.kind for e in result.trace]
    after = [kinds[i + 1 :] for i, kind in enumerate(kinds) if kind == "forward"]
    upto = [rest[: rest.index("forward")] if "forward" in rest else rest for rest in after]
    assert all("commit" in events for events in upto), "a forward without a commit"


def test_lookahead_and_normal_forwards_add_up_as_in_the_paper(engine: ripple.Engine) -> None:
    """Every standard commit but a block's last is followed by one forward; each block opens with one."""
    result = engine.generate(PROMPT, decoder=ripple.RPS(), length=24, block=8, trace=True)
    searches = [e for e in result.trace if e.kind == "search"]
    assert len(searches) == result.nfe_lookahead > 0
    assert result.nfe_normal >= 3
    rows = result.nfe + sum(len(e.data["token"]) for e in searches)
    assert result.canvases == rows


@pytest.mark.parametrize(
    "name", [n for n in DECODERS if n not in ("wino", "edit", "lopa", "ete", "rps", "glide")]
)
def test_every_single_forward_rule_can_be_the_standard_rule_of_rps(engine: ripple.Engine, name: str) -> None:
    rule = ripple.decoder(name)
    result = engine.generate(PROMPT, decoder=ripple.RPS(standard=rule), length=24, block=8)
    off = engine.generate(PROMPT, decoder=ripple.RPS(standard=rule, tau_pivot=2.0), length=24, block=8)
    alone = engine.generate(PROMPT, decoder=rule, length=24, block=8)
    assert engine.model.config.mask_id not in result.token_ids
    assert tokens_and_nfe(off) == tokens_and_nfe(alone)
    assert result.nfe <= alone.nfe


@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_fills_every_canvas(engine: ripple.Engine, name: str) -> None:
    shapes = ((13, 5), (16, 16), (7, 1), (9, 9))
    cases = [(*shape, cache, heat) for shape in shapes for cache in CACHES for heat in (0.0, 0.8)]
    lengths, blocks, caches, temperatures = map(list, zip(*cases, strict=True))
    results = engine.generate(
        [PROMPT[:1]] * len(cases), decoder=name, length=lengths, block=blocks, cache=caches,
        temperature=temperatures, seed=4,
    )  # fmt: skip
    for case, result in zip(cases, results, strict=True):
        length, block = case[:2]
        idle = 16 * -(-length // block)  # forwards of `edit` in which nothing need be revealed
        assert len(result.token_ids) == length, case
        assert engine.model.config.mask_id not in result.token_ids, case
        most = {"wino": 2 * length, "edit": length + idle}.get(name, length + 4)
        assert result.nfe <= most, case
        assert result.canvases >= result.nfe, case
        assert result.nfe == length or name != "default", case


def test_forced_first_tokens_are_a_named_switch_for_shifted_models(engines: dict[str, ripple.Engine]) -> None:
    forced = ripple.DualCache(match_fast_dllm_first=True)
    stock = engines["dream"].generate(
        PROMPT, decoder="confidence", length=24, block=8, cache=forced, trace=True
    )
    causes = [e.data["cause"] for e in stock.trace if e.kind == "commit"]
    assert causes.count("forced") == 3
    unshifted = engines["llada"].generate(PROMPT, decoder="confidence", length=24, block=8, cache=forced)
    plain = engines["llada"].generate(PROMPT, decoder="confidence", length=24, block=8, cache="dual")
    assert tokens_and_nfe(unshifted) == tokens_and_nfe(plain)


def test_results_say_what_they_hold(engine: ripple.Engine) -> None:
    result = engine.generate(PROMPT, decoder="confidence", length=24, block=8)
    assert [f.name for f in dataclasses.fields(result)] == [
        "text", "token_ids", "new_tokens", "nfe_normal", "nfe_lookahead", "canvases", "seconds",
        "engine_seconds", "finish", "is_full", "prompt_tokens", "causes", "trace", "tokenizer",
        "n_limited",
    ]  # fmt: skip
    assert result.is_full and result.seconds > 0 and result.prompt_tokens == 4
    ends = [i for i, t in enumerate(result.token_ids) if t in engine.model.config.end_ids]
    assert result.new_tokens == (result.token_ids[: ends[0] + 1] if ends else result.token_ids)
    assert result.finish == ("end" if ends else "length")
    assert len(result.causes) == 24 and set(result.causes) <= {"standard", "fallback"}
    assert repr(result).startswith("Result('', ") and len(repr(result)) < 150
