"""Cached decoding against literal transcriptions of the caches on transformers' own layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ripple
from ripple.caches import Cache
from tests.reference.cached import (
    forward,
    reference_cached_confidence,
    reference_dkv_confidence,
    reference_fast_dllm_dream,
)
from tests.reference.model import ReferenceModel

SHAPES = ((24, 8), (20, 7), (16, 16))


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> dict[str, ReferenceModel]:
    return {family: ReferenceModel(folder) for family, folder in folders.items()}


POLICIES = {
    "prefix": ripple.PrefixCache(),
    "dual": ripple.DualCache(),
    "dual-keep": ripple.DualCache(keep_prompt=True),
}


def prompt_of(seed: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, 40, size=3 + seed % 4)]


@pytest.mark.parametrize("cache", POLICIES)
@pytest.mark.parametrize("seed", range(12))
def test_tokens_and_nfe_equal_the_literal_caches(
    engine: ripple.Engine, models: dict[str, ReferenceModel], family: str, cache: str, seed: int
) -> None:
    prompt = prompt_of(seed)
    length, block = SHAPES[seed % len(SHAPES)]
    expected = reference_cached_confidence(models[family], prompt, length, block, cache, tau=0.8)
    result = engine.generate(
        prompt, decoder=ripple.Confidence(tau=0.8), length=length, block=block, cache=POLICIES[cache]
    )
    assert (result.token_ids, result.nfe) == expected


@pytest.mark.parametrize("cache", ["prefix", "dual"])
@pytest.mark.parametrize("tau", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("seed", range(12))
def test_the_switch_matches_fast_dllm_where_rows_predict_the_next_token(
    engines: dict[str, ripple.Engine], models: dict[str, ReferenceModel], cache: str, tau: float, seed: int
) -> None:
    prompt, (length, block) = prompt_of(seed), SHAPES[seed % len(SHAPES)]
    expected = reference_fast_dllm_dream(models["dream"], prompt, length, block, cache, tau)
    how = {"decoder": ripple.Confidence(tau=tau), "length": length, "block": block}
    matched = engines["dream"].generate(prompt, cache=f"{cache}:match_fast_dllm_first=true", **how)
    assert (matched.token_ids, matched.nfe) == expected


def test_the_switch_differs_from_the_usual_way(engines: dict[str, ripple.Engine]) -> None:
    how = {"decoder": "confidence", "length": 24, "block": 8}
    pairs = [
        [engines["dream"].generate(prompt_of(seed), cache=cache, **how).token_ids for cache in caches]
        for seed in range(12)
        for caches in [("dual", "dual:match_fast_dllm_first=true")]
    ]
    assert sum(one != other for one, other in pairs) >= 3


@pytest.mark.parametrize("refresh", [3, 8])
@pytest.mark.parametrize("seed", range(24))
def test_tokens_nfe_and_live_rows_equal_the_literal_delayed_cache(
    engine: ripple.Engine, models: dict[str, ReferenceModel], family: str, refresh: int, seed: int
) -> None:
    length, block = SHAPES[seed % len(SHAPES)]
    expected = reference_dkv_confidence(models[family], prompt_of(seed), length, block, refresh, tau=0.8)
    policy = ripple.DkvCache(refresh=refresh)
    settings = ripple.Options(ripple.Confidence(tau=0.8), length, block, policy)
    request, n_rows = engine.submit(prompt_of(seed), settings), 0
    n_rows = len(request.canvas.ids)  # the first tick admits and opens
    engine.tick()
    while request.finish is None:
        n_rows += len(request.build_layout("packed").base.row.pos)
        engine.tick()
    result = request.result()
    assert (result.token_ids, result.nfe, n_rows) == expected


@pytest.mark.parametrize(
    "one, other",
    [
        (ripple.NoCache(), ripple.DualCache()),
        (ripple.DualCache(), ripple.DualCache(keep_prompt=True)),
        (ripple.NoCache(), ripple.DkvCache()),
    ],
)
def test_the_caches_matter_here(engine: ripple.Engine, one: Cache, other: Cache) -> None:
    """With a cache some of these prompts decode differently, so the tests above could fail."""
    differs = 0
    for seed in range(12):
        how = {"decoder": ripple.Confidence(tau=0.8), "length": 24, "block": 8}
        results = [engine.generate(prompt_of(seed), cache=cache, **how).token_ids for cache in (one, other)]
        differs += results[0] != results[1]
    assert differs >= 3


def test_the_literal_forward_is_the_models_own(models: dict[str, ReferenceModel], family: str) -> None:
    ids = [5, 9, 2, 33, models[family].mask_id, models[family].mask_id]
    logits, _ = forward(models[family], ids, list(range(6)), None)
    plain = models[family].masked(ids, list(range(6)), np.ones((6, 6), dtype=bool))
    np.testing.assert_allclose(logits, plain, atol=1e-4)
