"""The statistics kernels against the plain pass, run on the CPU by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from ripple.engine.stats import log_probs, reduce_rows

pytest.importorskip("triton", reason="Triton is not installed")
from ripple.engine.fused_stats import reduce_logits

MASK = 17


@pytest.mark.parametrize(("vocab", "k"), [(300, 1), (300, 10), (4096, 3), (9001, 10)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_the_plain_pass(vocab: int, k: int, dtype: torch.dtype) -> None:
    logits = (torch.randn(4, vocab, generator=torch.Generator().manual_seed(vocab)) * 3).to(dtype)
    packed, lse = reduce_logits(logits, k, MASK)
    plain = reduce_rows(log_probs(logits.clone(), MASK), k)
    numbers = [1, 2, 3, *range(4 + k, 4 + 2 * k)]  # probabilities, entropy, finiteness
    torch.testing.assert_close(packed[:, numbers], plain[:, numbers], atol=2e-6, rtol=1e-5)
    assert torch.equal(packed[:, 0], plain[:, 0])
    barred = logits.float()
    barred[:, MASK] = -torch.inf
    torch.testing.assert_close(lse, barred.logsumexp(dim=1))


def test_ties_go_to_the_lowest_token_and_the_mask_never_wins() -> None:
    logits = torch.zeros(1, 5000)
    logits[0, [MASK, 4000, 300, 7]] = torch.tensor([9.0, 5.0, 5.0, 5.0])
    packed, _ = reduce_logits(logits, 5, MASK)
    assert packed[0, 4:9].tolist() == [7, 300, 4000, 0, 1]


def test_nan_and_infinity_are_told() -> None:
    logits = torch.randn(3, 500)
    logits[0, 3], logits[1, 4] = torch.nan, torch.inf
    packed, _ = reduce_logits(logits, 2, MASK)
    assert packed[:, 3].tolist() == [0, 0, 1]
