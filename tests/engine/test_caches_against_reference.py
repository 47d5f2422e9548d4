"""Cached decoding against a literal transcription of both caches on transformers' own layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ripple
from tests.reference.cached import forward, reference_cached_confidence
from tests.reference.model import ReferenceModel

SHAPES = ((24, 8), (20, 7), (16, 16))


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> dict[str, ReferenceModel]:
    return {family: ReferenceModel(folder) for family, folder in folders.items()}


@pytest.mark.parametrize("cache", ["prefix", "dual"])
@pytest.mark.parametrize("seed", range(12))
def test_tokens_and_nfe_equal_the_literal_caches(
    engine: ripple.Engine, models: dict[str, ReferenceModel], family: str, cache: str, seed: int
) -> None:
    prompt = np.random.default_rng(seed).integers(0, 40, size=3 + seed % 4).tolist()
    length, block = SHAPES[seed % len(SHAPES)]
    expected = reference_cached_confidence(models[family], prompt, length, block, cache, tau=0.8)
    result = engine.generate(
        prompt, decoder=ripple.Confidence(tau=0.8), length=length, block=block, cache=cache
    )
    assert (result.token_ids, result.nfe) == expected


def test_the_caches_matter_here(engine: ripple.Engine) -> None:
    """With a cache some of these prompts decode differently, so the test above could fail."""
    differs = 0
    for seed in range(12):
        prompt = np.random.default_rng(seed).integers(0, 40, size=3 + seed % 4).tolist()
        none, dual = (
            engine.generate(
                prompt, decoder=ripple.Confidence(tau=0.8), length=24, block=8, cache=cache
            ).token_ids
            for cache in ("none", "dual")
        )
        differs += none != dual
    assert differs >= 3


def test_the_literal_forward_is_the_models_own(models: dict[str, ReferenceModel], family: str) -> None:
    ids = [5, 9, 2, 33, models[family].mask_id, models[family].mask_id]
    logits, _ = forward(models[family], ids, list(range(6)), None)
    plain = models[family].masked(ids, list(range(6)), np.ones((6, 6), dtype=bool))
    np.testing.assert_allclose(logits, plain, atol=1e-4)
