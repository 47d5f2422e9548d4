"""What a request's trace says of its start, its forwards and its end; docs/trace.md documents the fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ripple.canvas import MOST_ROWS
from ripple.engine.result import Result
from ripple.look import Answer, Ask, Edits, Look
from ripple.trace import VERSION

if TYPE_CHECKING:
    from ripple.engine.request import Request


def start(request: Request) -> dict[str, Any]:
    """Return how the request is decoded."""
    options, decoder, tokenizer = request.options, request.decoder, request.tokenizer
    prompt = request.canvas.ids[: request.canvas.prompt_len].tolist()
    return {
        "v": VERSION, "decoder": decoder.name, "fields": decoder.settings(), "length": request.most_tokens,
        "block": request.canvas.block, "cache": request.cache.describe(), "lookahead": options.lookahead,
        "seed": options.seed, "temperature": options.temperature, "mask_id": request.config.mask_id,
        "prompt": prompt, "prompt_text": tokenizer.decode(prompt, skip_special=False) if tokenizer else "",
    }  # fmt: skip


def forward(request: Request, ask: Ask, answer: Answer, n_canvases: int, seconds: float) -> dict[str, Any]:
    """Return what one forward was, what it said of the base canvas and how its branches differ from it."""
    look = answer.base
    branches = [_branch(*one, look) for one in zip(ask.branches, answer.branches, strict=True)]
    return {
        "nfe": request.nfe, "kind": "lookahead" if ask.branches else "normal", "window": list(ask.window),
        "canvases": n_canvases, "seconds": round(seconds, 6), "pos": look.pos.tolist(),
        "token": look.token.tolist(), "p": look.p.tolist(), "entropy": look.entropy.tolist(),
        **({"branches": branches} if branches else {}),
        **({"most_rows": most} if (most := request.canvas.most_rows) < MOST_ROWS else {}),
    }  # fmt: skip


def _branch(edits: Edits, look: Look, base: Look) -> dict[str, Any]:
    """Return what one branch would make of the rest: its entropies, and where it predicts another token."""
    changed = look.token != base.token[np.searchsorted(base.pos, look.pos)]
    return {
        "edits": [list(edit) for edit in edits], "pos": look.pos[changed].tolist(),
        "token": look.token[changed].tolist(),
        "entropy": np.round(look.entropy.astype(np.float64), 3).tolist(),
    }  # fmt: skip


def tokens(data: dict[str, Any]) -> Iterable[int]:
    """Return every token id that the data of an event names."""
    yield from data.get("token", ())
    for branch in data.get("branches", ()):
        yield from (token for _, token in branch["edits"])
        yield from branch["token"]


def end(request: Request, result: Result, tokens: Iterable[int]) -> dict[str, Any]:
    """Return what the request came to, and the text of every token that its events have named."""
    mask_id, tokenizer = request.config.mask_id, request.tokenizer
    named = {*tokens, *result.token_ids} - {mask_id}
    pieces = (
        {str(token): tokenizer.decode([token], skip_special=False) for token in sorted(named)}
        if tokenizer
        else {}
    )
    return {
        "finish": result.finish, "nfe_normal": result.nfe_normal, "nfe_lookahead": result.nfe_lookahead,
        "canvases": result.canvases, "seconds": round(result.seconds, 6), "text": result.text,
        "token": request.canvas.whole_response.tolist(), "pieces": pieces,
    }  # fmt: skip
