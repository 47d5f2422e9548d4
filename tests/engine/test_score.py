"""Log-probabilities of hidden tokens on whole canvases, against transformers' own layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import ripple
import ripple.engine.score as score
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
    found = score.token_log_probs(engine.model, IDS, HIDDEN, batch)
    oracle, mask_id = ReferenceModel(folders[family]), engine.model.config.mask_id
    assert len(found) == len(HIDDEN)
    for log_p, hide in zip(found, HIDDEN, strict=True):
        logits = torch.from_numpy(oracle.logits(np.where(hide, mask_id, IDS).tolist()))
        wanted = torch.log_softmax(logits.double(), dim=-1)[
            torch.from_numpy(hide), torch.from_numpy(IDS[hide])
        ]
        np.testing.assert_allclose(log_p, wanted.numpy(), atol=2e-4)
