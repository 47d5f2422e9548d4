"""The Monte Carlo likelihood against its definition, computed by enumeration on transformers' own layers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ripple
from ripple.errors import RippleError
from ripple.eval.likelihood import draw_masks, hidden_counts, log_likelihood
from ripple.models.random_checkpoint import write_random_checkpoint
from tests.reference.blocks import block_causal_logits, causal_logits
from tests.reference.model import ReferenceModel

PROMPT, TARGET = [5, 9, 11], [7, 3, 20]


@pytest.fixture
def engine(engines: dict[str, ripple.Engine], family: str) -> ripple.Engine:
    """Both families, in place of this folder's one checkpoint."""
    return engines[family]


def by_enumeration(
    folder: Path, mask_id: int, prompt: list[int], target: list[int], block: int | None = None
) -> float:
    """The expectation itself: every number of hidden tokens alike, every choice of them alike."""
    model, values = ReferenceModel(folder), []
    logits = model.logits if block is None else block_causal_logits(model, block)
    for n_hidden in range(1, len(target) + 1):
        sums = []
        for places in itertools.combinations(range(len(target)), n_hidden):
            seen = [mask_id if i in places else token for i, token in enumerate(target)]
            rows = torch.log_softmax(torch.from_numpy(logits(prompt + seen)).double(), dim=-1)
            sums.append(sum(float(rows[len(prompt) + i, target[i]]) for i in places))
        values.append(len(target) / n_hidden * np.mean(sums))
    return float(np.mean(values))


def test_one_token_is_exact_and_costs_one_forward(
    engine: ripple.Engine, folders: dict[str, Path], family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = by_enumeration(folders[family], engine.model.config.mask_id, PROMPT, TARGET[:1])
    sizes, hidden = [], engine.model.hidden
    monkeypatch.setattr(engine.model, "hidden", lambda fwd, store: sizes.append(len(fwd.ids)) or hidden(fwd))
    assert log_likelihood(engine, PROMPT, TARGET[:1], 128, 0, 32) == pytest.approx(wanted, abs=1e-4)
    assert sizes == [1]


def test_many_draws_come_to_the_expectation(
    engine: ripple.Engine, folders: dict[str, Path], family: str
) -> None:
    wanted = by_enumeration(folders[family], engine.model.config.mask_id, PROMPT, TARGET)
    assert log_likelihood(engine, PROMPT, TARGET, 3000, 1, 64) == pytest.approx(wanted, rel=0.01)


@pytest.fixture(scope="module")
def by_blocks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Checkpoints whose blocks have four positions."""
    place = tmp_path_factory.mktemp("blocks")
    sizes: dict[str, Any] = {"vocab_size": 64, "d_model": 32, "d_ff": 64, "sharpness": 6.0}
    return {name: write_random_checkpoint(place / name, name, **sizes) for name in ("sdar", "nemotron")}


def test_a_block_is_judged_behind_the_targets_own_tokens(by_blocks: dict[str, Path]) -> None:
    """As decoding finds it: what lies before the open block holds no mask."""
    engine, target = ripple.load(by_blocks["sdar"], device="cpu"), [7, 3, 20, 8, 9, 1]
    mask_id = engine.model.config.mask_id
    first, second, third = target[:1], target[1:5], target[5:]  # the prompt has three tokens
    wanted = sum(
        by_enumeration(by_blocks["sdar"], mask_id, before, part, block=4)
        for before, part in (
            (PROMPT, first), ([*PROMPT, *first], second), ([*PROMPT, *first, *second], third)
        )
    )  # fmt: skip
    assert log_likelihood(engine, PROMPT, target, 3000, 1, 64) == pytest.approx(wanted, rel=0.01)
    all_at_once = by_enumeration(by_blocks["sdar"], mask_id, PROMPT, target, block=4)
    assert all_at_once != pytest.approx(wanted, rel=0.02), "the difference would be seen"


def test_a_causal_context_has_an_exact_likelihood_by_one_forward(
    by_blocks: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, target = ripple.load(by_blocks["nemotron"], device="cpu"), [7, 3, 20, 8, 9, 1]
    ids, sizes, hidden = PROMPT + target, [], engine.model.hidden
    rows = causal_logits(ReferenceModel(by_blocks["nemotron"]), len(ids))(ids)
    log_p = torch.log_softmax(torch.from_numpy(rows).double(), dim=-1)
    wanted = sum(float(log_p[i - 1, ids[i]]) for i in range(len(PROMPT), len(ids)))
    monkeypatch.setattr(engine.model, "hidden", lambda fwd, store: sizes.append(len(fwd.ids)) or hidden(fwd))
    assert log_likelihood(engine, PROMPT, target, 128, 0, 32) == pytest.approx(wanted, abs=1e-4)
    assert sizes == [1]


def test_the_value_depends_on_the_seed_and_on_nothing_else(engine: ripple.Engine) -> None:
    target = list(range(4, 24))
    first = log_likelihood(engine, PROMPT, target, 16, 0, 16)
    assert log_likelihood(engine, PROMPT, target, 16, 0, 16) == first
    assert log_likelihood(engine, PROMPT, target, 16, 0, 3) == pytest.approx(first, rel=1e-5)
    assert log_likelihood(engine, PROMPT, target, 16, 1, 16) != first
    assert first < 0 and log_likelihood(engine, PROMPT, [], 16, 0, 16) == 0


@pytest.mark.parametrize(("n_tokens", "n_draws"), [(1, 4), (7, 7), (10, 4), (5, 20), (13, 32)])
def test_counts_are_spread_as_in_lladas_script(n_tokens: int, n_draws: int) -> None:
    for seed in range(5):
        start = int(np.random.default_rng(seed).integers(1, n_tokens + 1))
        line = torch.linspace(float(start), start + (n_draws - 1) * (n_tokens / n_draws), steps=n_draws)
        wanted = (torch.round(line).long() - 1) % n_tokens + 1
        counts = hidden_counts(n_tokens, n_draws, np.random.default_rng(seed))
        assert counts.tolist() == wanted.tolist()
        often = np.bincount(counts, minlength=n_tokens + 1)[1:]
        assert np.abs(often - n_draws / n_tokens).max() <= 1  # each number comes up about equally often
        masks = draw_masks(n_tokens, n_draws, np.random.default_rng(seed))
        assert masks.sum(axis=1).tolist() == counts.tolist() and masks.shape == (n_draws, n_tokens)


def test_what_does_not_fit_is_one_sentence(engine: ripple.Engine) -> None:
    with pytest.raises(RippleError, match="continuation of 2000 exceed the model's 1024 positions"):
        log_likelihood(engine, PROMPT, [4] * 2000, 1, 0, 1)
    with pytest.raises(RippleError, match="at least one token before"):
        log_likelihood(engine, [], TARGET, 1, 0, 1)
