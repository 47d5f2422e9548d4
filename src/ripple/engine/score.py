"""How probable given tokens are on given canvases: the one way to ask the model outside a decoding.

Likelihoods need it, which no decoder ever asks for. It runs the model's own forward over whole canvases.
"""

from __future__ import annotations

import numpy as np
import torch

from ripple.canvas import Floats, Ints, Rows
from ripple.errors import RippleError
from ripple.models.base import ForwardInputs, Model

_LOGIT_ROWS = 512  # rows projected onto the vocabulary at a time; fp32 logits of LLaDA-8B: 260 MB


def token_log_probs(model: Model, ids: Ints, masked: Rows, batch: int) -> list[Floats]:
    """Mask a sequence in several ways and return, for each way, the log-probability of each hidden token.

    As in the published estimates the mask token is not barred, unlike in decoding.

    Args:
        model: what is asked.
        ids: [N] the sequence, nothing masked.
        masked: [S, N] which positions each of the S canvases hides; with a logit shift not the first.
        batch: canvases per forward.
    """
    config = model.config
    if config.causal_context:
        raise RippleError(
            f"Likelihoods by masking are not defined for {config.family}, whose context is causal."
        )
    log_probs: list[Floats] = []
    for start in range(0, len(masked), batch):
        hide = masked[start : start + batch]
        at = np.argwhere(hide)  # canvas, position; canvas by canvas
        canvases = np.where(hide, config.mask_id, ids)
        read = at[:, 0] * len(ids) + at[:, 1] - config.logit_shift
        log_p = _log_p(model, canvases, read, ids[at[:, 1]])
        log_probs += np.split(log_p, np.cumsum(hide.sum(axis=1))[:-1])
    return log_probs


def next_token_log_probs(model: Model, ids: Ints, start: int) -> Floats:
    """Return the log-probability of each token from `start` on, after all tokens before it, by one forward.

    For models whose context is causal: each row is asked for what predicts a block's first token.
    """
    rows = np.arange(start - 1, len(ids) - 1)
    return _log_p(model, ids[None], rows, ids[start:], open_start=len(ids))


def _log_p(model: Model, canvases: Ints, read: Ints, tokens: Ints, open_start: int = 0) -> Floats:
    """Run one forward over equally long canvases; return log p of a token at each row that is read."""
    n_canvases, n = canvases.shape
    to = model.device
    inputs = ForwardInputs(
        ids=torch.from_numpy(canvases).to(to),
        pos=torch.arange(n, device=to).repeat(n_canvases, 1),
        n_live=n,
        branch_len=0,
        n_keys=n,
        key_len=None,
        hide=None,
        own_len=None,
        limit=_limits(model, n, n_canvases, open_start),
        read=torch.from_numpy(read).to(to),
    )
    hidden, wanted = model.hidden(inputs, None), torch.from_numpy(tokens).to(to)
    parts = []
    for start in range(0, len(hidden), _LOGIT_ROWS):
        part = slice(start, start + _LOGIT_ROWS)
        log_p = torch.log_softmax(model.logits(hidden[part]).float(), dim=-1)
        parts.append(log_p.gather(1, wanted[part, None])[:, 0])
    return torch.cat(parts).cpu().numpy()


def _limits(model: Model, n: int, n_canvases: int, open_start: int) -> torch.Tensor | None:
    """Return which keys each row sees [S, N], or None where it sees all."""
    limits = model.config.limits(np.arange(n), n, open_start)
    return None if limits is None else torch.from_numpy(limits).to(model.device).repeat(n_canvases, 1)
