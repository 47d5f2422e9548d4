"""Log-probabilities of hidden tokens on whole canvases, against transformers' own layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import ripple
import ripple.engine.score as score
from ripple.models.random_checkpoint import write_random_checkpoint
from tests.reference.blocks import block_causal_logits, causal_logits
from tests.reference.model import ReferenceModel

IDS = np.array([5, 9, 11, 7, 3, 20, 8])
HIDDEN = np.array([[0, 0, 1, 0, 1, 1, 0], [0, 1, 0, 0, 0, 0, 0], [0, 1, 1, 1, 1, 1, 1]], dtype=bool)


@pytest.mark.parametrize("batch", [1, 2, 8])
@pytest.mark.parametrize("logit_rows", [1, 512])
def test_each_hidden_token_has_its_log_probability(
    engine: ripple.Engine, folders: dict[str, Path], family: str, batch: int, logit_rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(score, "_LOGIT_ROWS", logit_rows)
    log_probs = score.token_log_probs(engine.model, IDS, HIDDEN, batch)
    oracle, mask_id = ReferenceModel(folders[family]), engine.model.config.mask_id
    assert len(log_probs) == len(HIDDEN)
    for log_p, hide in zip(log_probs, HIDDEN, strict=True):
        logits = torch.from_numpy(oracle.logits(np.where(hide, mask_id, IDS).tolist()))
        wanted = torch.log_softmax(logits.double(), dim=-1)[
            torch.from_numpy(hide), torch.from_numpy(IDS[hide])
        ]
        np.testing.assert_allclose(log_p, wanted.numpy(), atol=2e-4)


def test_a_block_causal_model_scores_under_its_own_mask(tmp_path: Path) -> None:
    folder = write_random_checkpoint(tmp_path, "sdar", vocab_size=64, d_model=32, block_size=4)
    model, oracle = ripple.load(folder, device="cpu").model, ReferenceModel(folder)
    log_probs = score.token_log_probs(model, IDS, HIDDEN, 2)
    for log_p, hide in zip(log_probs, HIDDEN, strict=True):
        logits = block_causal_logits(oracle, 4)(np.where(hide, oracle.mask_id, IDS).tolist())
        all_log_p = torch.log_softmax(torch.from_numpy(logits).double(), dim=-1)
        wanted = all_log_p[torch.from_numpy(hide), torch.from_numpy(IDS[hide])]
        np.testing.assert_allclose(log_p, wanted.numpy(), atol=2e-4)


@pytest.mark.parametrize("start", [1, 4, 6])
def test_a_causal_context_predicts_every_next_token_and_masks_none(tmp_path: Path, start: int) -> None:
    folder = write_random_checkpoint(tmp_path, "nemotron", vocab_size=64, d_model=32)
    model, oracle = ripple.load(folder, device="cpu").model, ReferenceModel(folder)
    all_log_p = torch.log_softmax(torch.from_numpy(causal_logits(oracle, len(IDS))(IDS.tolist())), dim=-1)
    wanted = all_log_p[torch.arange(start - 1, len(IDS) - 1), torch.from_numpy(IDS[start:])]
    np.testing.assert_allclose(score.next_token_log_probs(model, IDS, start), wanted.numpy(), atol=2e-4)
    with pytest.raises(ripple.RippleError, match="not defined for nemotron, whose context is causal"):
        score.token_log_probs(model, IDS, HIDDEN, 2)
