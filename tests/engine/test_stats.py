"""The statistics pass against plain float64 arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ripple.engine.stats import KL_FLOOR, Sampling, kl_to, log_probs, reduce_rows, unpack

N, V, MASK = 40, 97, 13


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.randn(N, V, generator=torch.Generator().manual_seed(0)) * 4


def softmax64(logits: torch.Tensor) -> np.ndarray:
    x = logits.double().numpy().copy()
    x[:, MASK] = -np.inf
    p = np.exp(x - x.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("k", [1, 2, 10])
def test_token_probability_and_entropy_equal_float64(logits: torch.Tensor, k: int) -> None:
    p = softmax64(logits)
    stats = unpack(reduce_rows(log_probs(logits.clone(), MASK), k).numpy(), k)
    assert stats.token.tolist() == p.argmax(axis=1).tolist()
    np.testing.assert_allclose(stats.p, p.max(axis=1), rtol=2e-6)
    safe = np.where(p > 0, p, 1)
    np.testing.assert_allclose(stats.entropy, -(p * np.log(safe)).sum(axis=1), rtol=1e-5, atol=1e-6)
    order = np.argsort(-p, axis=1, kind="stable")[:, :k]
    assert stats.top_token.tolist() == order.tolist()
    np.testing.assert_allclose(stats.top_p, np.take_along_axis(p, order, axis=1), rtol=2e-6)
    assert stats.finite.all()


def test_the_mask_token_is_never_predicted(logits: torch.Tensor) -> None:
    logits[:, MASK] = 1e4
    stats = unpack(reduce_rows(log_probs(logits, MASK), V - 1).numpy(), V - 1)
    assert (stats.token != MASK).all() and (stats.top_token != MASK).all()
    np.testing.assert_allclose(stats.top_p.sum(axis=1), 1, rtol=1e-5)


def test_ties_go_to_the_lowest_token_id() -> None:
    logits = torch.zeros(3, V)
    logits[:, [50, 7, 30]] = 2.0
    for k in (1, 3, 5):
        stats = unpack(reduce_rows(log_probs(logits.clone(), MASK), k).numpy(), k)
        assert stats.token.tolist() == [7, 7, 7]
        assert stats.top_token[0, :3].tolist() == [7, 30, 50][:k]


def test_a_certain_row_has_no_entropy(logits: torch.Tensor) -> None:
    logits[:, 5] = 1e4
    stats = unpack(reduce_rows(log_probs(logits, MASK), 2).numpy(), 2)
    assert (stats.entropy == 0).all() and (stats.p == 1).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rows_that_are_not_finite_are_reported(logits: torch.Tensor, bad: float) -> None:
    logits[4, 20] = bad
    stats = unpack(reduce_rows(log_probs(logits, MASK), 3).numpy(), 3)
    assert np.flatnonzero(~stats.finite).tolist() == [4]


def test_sampling_follows_the_tempered_distribution() -> None:
    n = 20_000
    row = torch.tensor([1.0, 0.0, 2.0, -1.0, 0.5])
    temperature = 0.7
    uniform = torch.from_numpy(np.random.default_rng(0).random(n))
    logp = log_probs(row.repeat(n, 1), mask_id=4)
    how = Sampling(torch.full((n,), temperature), uniform)
    stats = unpack(reduce_rows(logp, 1, how).numpy(), 1)
    expected = torch.softmax(row[:4] / temperature, dim=0).numpy()
    share = np.bincount(stats.token, minlength=5) / n
    np.testing.assert_allclose(share[:4], expected, atol=4 * np.sqrt(0.25 / n))
    assert share[4] == 0
    confidence = torch.softmax(row[:4], dim=0).numpy()
    np.testing.assert_allclose(stats.p, confidence[stats.token], rtol=1e-5)


def test_greedy_rows_stay_greedy_beside_sampled_ones(logits: torch.Tensor) -> None:
    temperature = torch.zeros(N)
    temperature[::2] = 5.0
    how = Sampling(temperature, torch.rand(N, generator=torch.Generator().manual_seed(1)))
    logp = log_probs(logits, MASK)
    sampled, greedy = (unpack(reduce_rows(logp, 1, s).numpy(), 1) for s in (how, None))
    assert (sampled.token[1::2] == greedy.token[1::2]).all()
    assert (sampled.token[::2] != greedy.token[::2]).any()


def test_kl_to_the_previous_look(logits: torch.Tensor) -> None:
    before = torch.randn(N, V, generator=torch.Generator().manual_seed(2))
    p, q = softmax64(logits), softmax64(before)
    _, log_before = kl_to(log_probs(before, MASK), torch.zeros(N, V))
    kl, _ = kl_to(log_probs(logits, MASK), log_before)
    expected = (p * (np.log(p + KL_FLOOR) - np.log(q + KL_FLOOR))).sum(axis=1)
    np.testing.assert_allclose(kl.numpy(), expected, rtol=1e-4, atol=1e-5)
