"""Objectives: what is hidden from the network, what it must predict, and with which weight.

Autoregressive: causal attention, row i predicts token i + 1, the plain language model. Both models begin so;
tiny-llada drops the shift when diffusion begins.

Diffusion: the prompt is never masked. 80 %: blocks of 32 before a random one are clean, that one is
masked at a random rate, later ones are hidden. 20 %: the whole canvas at a random rate. Within the block
part of the masks lean to the right, since decoders reveal roughly left to right: c = 0 is independent
noise, c = 1 hides a suffix.

Cached: as in decoding with a cache, the keys outside the block (or before it) come from a forward in which
the whole block was still masked. A model that never met such stale keys relies on fresh ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 32
LATER = 0.1  # weight of hidden blocks after the current one: they are mostly guesswork
WHOLE = 0.3  # weight under whole-canvas noise, which has several times more masked tokens per sample
FILL = 0.2  # weight of end tokens after the first: easy once the end is seen


@dataclass(slots=True)
class Batch:
    """Clean sequences of one length, filled with end tokens."""

    ids: Tensor  # [batch, T]
    prompt: Tensor  # [batch] prompt lengths
    total: Tensor  # [batch] prompt and response lengths: where the first end token stands


def _grid(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    at = torch.arange(batch.ids.shape[1], device=batch.ids.device)[None]
    return at, at - batch.prompt[:, None], at - batch.total[:, None]


def autoregressive_weight(batch: Batch) -> Tensor:
    """Return the weight of each token as an autoregressive target: the response and two end tokens."""
    _, inside, after = _grid(batch)
    return ((inside >= 0) & (after < 2)).float()


@dataclass(slots=True)
class Noised:
    """What the network sees and must predict."""

    ids: Tensor  # [batch, T]
    weight: Tensor  # [batch, T] of each token as a target
    first: Tensor  # [batch] where the current block begins, counted from the start of the response


def diffusion(batch: Batch, mask_id: int, whole_share: float = 0.2) -> Noised:
    """Hide part of each canvas."""
    ids = batch.ids
    rows, length = ids.shape
    _, inside, after = _grid(batch)

    def rand(*shape: int) -> Tensor:
        return torch.rand(shape, device=ids.device)

    canvas = inside >= 0
    filled = (batch.total - batch.prompt) // BLOCK + 1  # blocks up to the one with the first end token
    blocks = (length - batch.prompt + BLOCK - 1) // BLOCK
    span = torch.where(rand(rows) < 0.05, blocks, torch.minimum(filled, blocks))
    first = ((rand(rows) * span).long() * BLOCK)[:, None]
    current = canvas & (inside >= first) & (inside < first + BLOCK)
    later = inside >= first + BLOCK

    # A stratified rate: every batch covers all noise levels evenly.
    rate = ((torch.randperm(rows, device=ids.device) + rand(rows)) / rows)[:, None]
    kind, lean = rand(rows), rand(rows)
    lean = torch.where(kind < 0.4, 0.0, torch.where(kind < 0.6, 1.0, lean))[:, None]
    draw = rand(rows, length)
    order = 1 - (inside - first + 0.5) / BLOCK  # 1 at the block's left edge, 0 at its right
    hide_current = current & (draw * (1 - lean) + order * lean < rate)
    whole = (rand(rows) < whole_share)[:, None]
    hidden = torch.where(whole, canvas & (draw < rate), hide_current | later)
    weight = torch.where(whole, WHOLE, torch.where(later, LATER, 1.0)) * hidden
    weight = torch.where(after > 0, weight * FILL, weight)
    return Noised(torch.where(hidden, mask_id, ids), weight, first[:, 0])


def opening(batch: Batch, noised: Noised, mask_id: int) -> Tensor:
    """Return the ids of the forward that opened the current block: it and all after it masked."""
    _, inside, _ = _grid(batch)
    return torch.where(inside >= noised.first[:, None], mask_id, batch.ids)


def live_rows(batch: Batch, noised: Noised, lead: int, dual: Tensor) -> Tensor:
    """Return which rows [batch, T] a cached forward recomputes: the block, and all after it unless `dual`."""
    _, inside, _ = _grid(batch)
    begins = inside >= noised.first[:, None] - lead
    within = inside < noised.first[:, None] + BLOCK
    return begins & (within | ~dual[:, None])
