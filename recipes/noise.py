"""Objectives: what is hidden from the network, what it must predict, and with which weight.

Autoregressive: causal attention, row i predicts token i + 1, the plain language model. Both models begin so;
tiny-llada drops the shift when diffusion begins.

Diffusion: the prompt is never masked. 80 %: blocks of 32 before a random one are clean, that one is
masked at a random rate, later ones are hidden. 20 %: the whole canvas at a random rate. Within the block
part of the masks lean to the right, since decoders reveal roughly left to right: c = 0 is independent
noise, c = 1 hides a suffix.

Block by block (tiny-sdar): a row sees its own block and the ones before it, counted from position 0 with the
prompt. One forward of [noised | clean] gives the loss of all blocks: a noised block sees itself and the clean
blocks before it, which is what decoding will show it.

Cached: as in decoding with a cache, the keys outside the block (or before it) come from a forward in which
the whole block was still masked. Under the `slide` cache the masks after the window have the keys of the
first forward, and what the window has left those of the moment when it left. A model that was not trained on
such stale keys relies on fresh ones.
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


def diffusion(batch: Batch, mask_id: int, whole_share: float = 0.2, window: int | None = None) -> Noised:
    """Hide part of each canvas; a window of that many positions may begin anywhere, a block may not."""
    ids = batch.ids
    rows, length = ids.shape
    _, inside, after = _grid(batch)

    def rand(*shape: int) -> Tensor:
        return torch.rand(shape, device=ids.device)

    canvas = inside >= 0
    filled = (batch.total - batch.prompt) // BLOCK + 1  # blocks up to the one with the first end token
    blocks = (length - batch.prompt + BLOCK - 1) // BLOCK
    span = torch.where(rand(rows) < 0.05, blocks, torch.minimum(filled, blocks))
    step, width = (BLOCK, BLOCK) if window is None else (1, window)
    first = ((rand(rows) * span * (BLOCK // step)).long() * step)[:, None]
    current = canvas & (inside >= first) & (inside < first + width)
    later = inside >= first + width

    # A stratified rate: every batch covers all noise levels evenly.
    rate = ((torch.randperm(rows, device=ids.device) + rand(rows)) / rows)[:, None]
    lean = _lean(rand(rows), rand(rows))[:, None]
    draw = rand(rows, length)
    order = 1 - (inside - first + 0.5) / width  # 1 at the block's left edge, 0 at its right
    hide_current = current & (draw * (1 - lean) + order * lean < rate)
    whole = (rand(rows) < whole_share)[:, None]
    hidden = torch.where(whole, canvas & (draw < rate), hide_current | later)
    weight = torch.where(whole, WHOLE, torch.where(later, LATER, 1.0)) * hidden
    weight = torch.where(after > 0, weight * FILL, weight)
    return Noised(torch.where(hidden, mask_id, ids), weight, first[:, 0])


def _lean(kind: Tensor, lean: Tensor) -> Tensor:
    """Return how far masks lean to the right: 40 % not at all, 20 % wholly, the rest in between."""
    return torch.where(kind < 0.4, 0.0, torch.where(kind < 0.6, 1.0, lean))


def every_block(batch: Batch, mask_id: int) -> Noised:
    """Hide part of every block, each at its own rate. Blocks are counted from position 0."""
    rows, length = batch.ids.shape
    blocks = -(-length // BLOCK)
    at, inside, after = _grid(batch)

    def rand(*shape: int) -> Tensor:
        return torch.rand(shape, device=batch.ids.device)

    def spread(per_block: Tensor) -> Tensor:
        return per_block.repeat_interleave(BLOCK, dim=1)[:, :length]

    rate = spread((rand(rows, blocks).argsort(0) + rand(rows, blocks)) / rows)  # stratified within a block
    lean = spread(_lean(rand(rows, blocks), rand(rows, blocks)))
    stop = (at // BLOCK + 1) * BLOCK
    begin = torch.maximum(stop - BLOCK, batch.prompt[:, None])  # the first block has the prompt's tail
    order = 1 - (at - begin + 0.5) / (stop - begin).clamp(min=1)
    hidden = (inside >= 0) & (rand(rows, length) * (1 - lean) + order * lean < rate)
    weight = torch.where(after > 0, FILL, 1.0) * hidden
    unasked = stop - BLOCK > batch.total[:, None]  # decoding stops after the block with the first end token
    weight = torch.where(unasked, weight * LATER, weight)
    return Noised(torch.where(hidden, mask_id, batch.ids), weight, torch.zeros_like(batch.prompt))


def block_causal(length: int, device: torch.device) -> Tensor:
    """Return which keys (second) each row (first) sees: those of its own block and of the ones before it."""
    block = torch.arange(length, device=device) // BLOCK
    return block[None] <= block[:, None]


def noised_beside_clean(length: int, device: torch.device) -> Tensor:
    """Return who sees whom in [noised | clean]: a noised block itself and the clean blocks before it."""
    block = torch.arange(length, device=device) // BLOCK
    own, before = block[None] == block[:, None], block[None] < block[:, None]
    noised = torch.cat((own, before), dim=1)
    clean = torch.cat((torch.zeros_like(own), own | before), dim=1)
    return torch.cat((noised, clean))


def opening(batch: Batch, first: Tensor, mask_id: int) -> Tensor:
    """Return the ids of a forward that opens a block at `first` [batch]: it and all after it masked."""
    _, inside, _ = _grid(batch)
    return torch.where(inside >= first[:, None], mask_id, batch.ids)


def live_rows(batch: Batch, start: Tensor, stop: Tensor, lead: int) -> Tensor:
    """Return which rows [batch, T] a cached forward recomputes: from `start` [batch] up to `stop` [batch]."""
    _, inside, _ = _grid(batch)
    return (inside >= start[:, None] - lead) & (inside < stop[:, None])
