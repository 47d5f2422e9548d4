"""Logits in, small numbers out: the one place where vocabulary-sized tensors are reduced.

Everything is computed in fp32 on the device and leaves it as one packed array, copied once per tick.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ripple.canvas import Floats, Ints

Tensor = torch.Tensor
NEVER = -1e30  # a logit that no softmax notices, yet 0 * NEVER is 0, not NaN
KL_FLOOR = 1e-12  # added inside both logarithms of the KL, as KLASS does


@dataclass(slots=True)
class RowStats:
    """Statistics of n rows on the host; all arrays are views of one copy."""

    token: Ints  # [n]
    p: Floats  # [n]
    entropy: Floats  # [n] nats
    top_token: Ints  # [n, k]
    top_p: Floats  # [n, k]
    finite: np.ndarray[tuple[int], np.dtype[np.bool_]]  # [n] False where the logits were NaN or infinite


@dataclass(slots=True)
class Sampling:
    """Per-row sampling inputs: temperature 0 means greedy."""

    temperature: Tensor  # [n]
    uniform: Tensor  # [n] in [0, 1)

    def part(self, start: int, stop: int) -> Sampling:
        """Return the inputs of rows start ... stop-1."""
        return Sampling(self.temperature[start:stop], self.uniform[start:stop])


def log_probs(logits: Tensor, mask_id: int) -> Tensor:
    """Return fp32 log-probabilities [n, V] with the mask token barred."""
    logits = logits.float()
    logits[:, mask_id] = NEVER
    return torch.log_softmax(logits, dim=-1)


def reduce_rows(logp: Tensor, k: int, sampling: Sampling | None = None) -> Tensor:
    """Reduce [n, V] to [n, 2k + 4]: token, p, entropy, finite, k tokens, k probabilities."""
    p = logp.exp()
    entropy = -torch.linalg.vecdot(p, logp)
    p_token, token = p.max(dim=-1, keepdim=True)  # the first index on ties
    top_token, top_p = (token, p_token) if k == 1 else _top(p, k, token)
    if sampling is not None:
        token, p_token = _sample(logp, p, token, p_token, sampling)
    finite = torch.isfinite(entropy)
    columns = (token, p_token, entropy[:, None], finite[:, None], top_token, top_p)
    return torch.cat([column.to(torch.float32) for column in columns], dim=1)


def unpack(packed: np.ndarray[tuple[int, int], np.dtype[np.float32]], k: int) -> RowStats:
    """Give names to the columns of `reduce_rows`."""
    token = packed[:, 0].astype(np.int64)
    top_token = packed[:, 4 : 4 + k].astype(np.int64)
    return RowStats(
        token, packed[:, 1], packed[:, 2], top_token, packed[:, 4 + k : 4 + 2 * k], packed[:, 3] > 0.5
    )


def kl_to(logp: Tensor, log_before: Tensor) -> tuple[Tensor, Tensor]:
    """Return KL(p || before) per row, and log(p + floor), which is the next step's `log_before`."""
    p = logp.exp()
    log_now = torch.log(p + KL_FLOOR)
    return (p * (log_now - log_before)).sum(dim=-1), log_now


def _top(p: Tensor, k: int, best: Tensor) -> tuple[Tensor, Tensor]:
    """Return the k largest, `best` first, ties in order of token id (topk alone leaves their order open)."""
    value, token = p.topk(k, dim=-1, sorted=False)
    token, order = token.sort(dim=-1)
    value, order = value.gather(1, order).sort(dim=-1, descending=True, stable=True)
    token = token.gather(1, order)
    token[:, :1] = best  # differs only when more than k tokens tie for the first place
    return token, value


def _sample(
    logp: Tensor, p: Tensor, greedy: Tensor, p_greedy: Tensor, how: Sampling
) -> tuple[Tensor, Tensor]:
    """Draw by inverse CDF with one uniform number per row; the confidence stays that of temperature 1."""
    warm = how.temperature > 0
    scaled = torch.softmax(logp.double() / torch.where(warm, how.temperature, 1.0)[:, None], dim=-1)
    cdf = scaled.cumsum(dim=-1)
    drawn = torch.searchsorted(cdf, (how.uniform.double() * cdf[:, -1])[:, None], right=True)
    drawn = drawn.clamp_max(logp.shape[1] - 1)
    token = torch.where(warm[:, None], drawn, greedy)
    return token, torch.where(warm[:, None], p.gather(1, token), p_greedy)
