"""Block diffusion, written out literally: a dense mask over the whole canvas, one block after the other.

No cache, no stored block, no branch behind a canvas: every look is one forward over everything that is there.
Which decoder fills a block is a parameter; the transcriptions in `decoders.py` and `glide.py` serve.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.reference.decoders import LogitsFn, Result, ShadowFn
from tests.reference.model import ReferenceModel


def block_causal(n: int, block: int) -> np.ndarray:
    """Row i sees key j where j's block is not behind its own; blocks are counted from position 0."""
    mask = np.zeros((n, n), dtype=bool)
    for row in range(n):
        for key in range(n):
            mask[row, key] = key // block <= row // block
    return mask


def block_causal_logits(model: ReferenceModel, block: int) -> LogitsFn:
    """One forward over the canvas under the block-causal mask."""
    return lambda ids: model.masked(ids, list(range(len(ids))), block_causal(len(ids), block))


def block_causal_shadow(model: ReferenceModel, block: int) -> ShadowFn:
    """One forward over the canvas and a mask per position of its last block; none sees its own token."""

    def shadow(ids: list[int], start: int, stop: int) -> np.ndarray:
        n, size = len(ids), stop - start
        mask = np.zeros((n + size, n + size), dtype=bool)
        mask[:n, :n] = block_causal(n, block)
        mask[n:] = True
        for row in range(size):
            mask[n + row, start + row] = False
        pos = [*range(n), *range(start, stop)]
        return model.masked([*ids, *[model.mask_id] * size], pos, mask)[n:]

    return shadow


def decode_by_blocks(
    decode: Callable[..., Result], looks: tuple[Any, ...], prompt: list[int], length: int, block: int,
    mask_id: int, end_ids: tuple[int, ...], **fields: Any,
) -> Result:  # fmt: skip
    """Fill up the block that holds the prompt's end, then block after block, until one holds an end token."""
    canvas, nfe = list(prompt), 0
    while len(canvas) < len(prompt) + length:
        n_open = block - len(canvas) % block
        tokens, forwards = decode(*looks, canvas, n_open, n_open, mask_id, **fields)
        canvas, nfe = canvas + tokens, nfe + forwards
        if any(token in end_ids for token in tokens):
            break
    return canvas[len(prompt) :], nfe


def causal_context(n: int, open_start: int) -> np.ndarray:
    """Rows before the open block see keys up to themselves; rows of the open block see everything."""
    mask = np.ones((n, n), dtype=bool)
    for row in range(min(open_start, n)):
        mask[row, row + 1 :] = False
    return mask


def causal_logits(model: ReferenceModel, open_start: int) -> LogitsFn:
    """One forward over the canvas, whose open block begins at `open_start`."""
    return lambda ids: model.masked(ids, list(range(len(ids))), causal_context(len(ids), open_start))


def causal_shadow(model: ReferenceModel, open_start: int) -> ShadowFn:
    """As `block_causal_shadow`, with a causal context."""

    def shadow(ids: list[int], start: int, stop: int) -> np.ndarray:
        n, size = len(ids), stop - start
        mask = np.ones((n + size, n + size), dtype=bool)
        mask[:n, :n] = causal_context(n, open_start)
        mask[:n, n:] = False
        for row in range(size):
            mask[n + row, start + row] = False
        return model.masked([*ids, *[model.mask_id] * size], [*range(n), *range(start, stop)], mask)[n:]

    return shadow


def decode_with_next_tokens(
    decode: Callable[..., Result], model: ReferenceModel, with_shadow: bool, prompt: list[int], length: int,
    block: int, end_ids: tuple[int, ...], **fields: Any,
) -> Result:  # fmt: skip
    """Blocks from the prompt's end: one causal forward predicts a block's first token, then it is filled."""
    canvas, nfe, mask_id = list(prompt), 0, model.mask_id
    while len(canvas) < len(prompt) + length:
        start = len(canvas)
        row = causal_logits(model, start)(canvas)[-1].astype(np.float64)
        row[mask_id] = -np.inf
        canvas, nfe = [*canvas, int(row.argmax())], nfe + 1
        looks: tuple[Any, ...] = (causal_logits(model, start),)
        looks += (causal_shadow(model, start),) if with_shadow else ()
        tokens, forwards = decode(*looks, canvas, block - 1, block - 1, mask_id, **fields)
        canvas, nfe = canvas + tokens, nfe + forwards
        if any(token in end_ids for token in canvas[start:]):
            break
    return canvas[len(prompt) :], nfe
