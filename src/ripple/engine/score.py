"""How probable given tokens are on given canvases: the one way to ask the model outside a decoding.

Likelihoods need it, which no decoder ever asks for. It runs the model's own forward over whole canvases.
"""

from __future__ import annotations

import numpy as np
import torch

from ripple.canvas import Floats, Ints, Rows
from ripple.models.forward import Forward
from ripple.models.transformer import Transformer

_LOGIT_ROWS = 512  # rows projected onto the vocabulary at a time; fp32 logits of LLaDA-8B: 260 MB


def token_log_probs(model: Transformer, ids: Ints, masked: Rows, batch: int) -> list[Floats]:
    """Mask a sequence in several ways and return, for each way, the log-probability of each hidden token.

    As in the published estimates the mask token is not barred, unlike in decoding.

    Args:
        model: what is asked.
        ids: [N] the sequence, nothing masked.
        masked: [S, N] which positions each of the S canvases hides; with a logit shift not the first.
        batch: canvases per forward.
    """
    config = model.config
    found: list[Floats] = []
    for start in range(0, len(masked), batch):
        hide = masked[start : start + batch]
        at = np.argwhere(hide)  # canvas, position; canvas by canvas
        canvases = np.where(hide, config.mask_id, ids)
        read = at[:, 0] * len(ids) + at[:, 1] - config.logit_shift
        log_p = _log_p(model, canvases, read, ids[at[:, 1]])
        found += np.split(log_p, np.cumsum(hide.sum(axis=1))[:-1])
    return found


def _log_p(model: Transformer, canvases: Ints, read: Ints, tokens: Ints) -> Floats:
    """Run one forward over equally long canvases; return log p of a token at each row that is read."""
    n_canvases, n = canvases.shape
    to = model.device
    forward = Forward(
        ids=torch.from_numpy(canvases).to(to),
        pos=torch.arange(n, device=to).repeat(n_canvases, 1),
        n_live=n,
        branch_len=0,
        n_keys=n,
        key_len=None,
        hidden=None,
        own_len=None,
        read=torch.from_numpy(read).to(to),
    )
    hidden, wanted = model.hidden(forward, None), torch.from_numpy(tokens).to(to)
    parts = []
    for start in range(0, len(hidden), _LOGIT_ROWS):
        part = slice(start, start + _LOGIT_ROWS)
        log_p = torch.log_softmax(model.logits(hidden[part]).float(), dim=-1)
        parts.append(log_p.gather(1, wanted[part, None])[:, 0])
    return torch.cat(parts).cpu().numpy()
