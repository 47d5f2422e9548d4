"""LLaDA2.1's generation loop, written out literally: mask-to-token and token-to-token transfers."""

from __future__ import annotations

from collections import Counter

from tests.reference.decoders import (
    LogitsFn,
    Result,
    blocks,
    by_confidence,
    confidence,
    look_at,
    masked_in,
    top1,
)


def reference_edit(
    logits: LogitsFn,
    prompt: list[int],
    length: int,
    block: int,
    mask_id: int,
    *,
    tau: float,
    tau_edit: float,
    post_steps: int = 16,
    notes: Counter[str] | None = None,
) -> Result:
    """Section 3.3 of the facts: both transfers are decided from the tokens that the forward has seen."""
    notes = Counter() if notes is None else notes
    canvas = list(prompt) + [mask_id] * length
    nfe = 0
    for start, stop in blocks(len(prompt), length, block):
        without_masks = 0
        while True:
            masked = masked_in(canvas, start, stop, mask_id)
            if not masked:
                without_masks += 1
            if without_masks > post_steps:
                notes["out_of_steps"] += 1
                break
            look = look_at(logits, canvas, mask_id)
            nfe += 1

            mask_to_token = [i for i in masked if confidence(look[i]) > tau]
            if masked and not mask_to_token:
                mask_to_token = by_confidence({i: look[i] for i in masked})[:1]
            token_to_token = [
                i
                for i in range(start, stop)
                if canvas[i] != mask_id and top1(look[i]) != canvas[i] and confidence(look[i]) > tau_edit
            ]
            for i in mask_to_token + token_to_token:
                canvas[i] = top1(look[i])
            notes["edited"] += bool(token_to_token)
            notes["edited_full_block"] += bool(token_to_token) and not masked
            if not masked and not token_to_token:
                notes["came_to_rest"] += 1
                break
    return canvas[len(prompt) :], nfe
