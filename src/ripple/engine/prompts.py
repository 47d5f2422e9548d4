"""Prompts at the border: a string, token ids or chat messages in, checked token ids out."""

from __future__ import annotations

from typing import Any

import numpy as np

from ripple.canvas import Ints
from ripple.errors import RippleError
from ripple.models.records import ModelConfig
from ripple.text import Text

Prompt = str | list[int] | list[dict[str, str]]


def many_prompts(prompts: Any) -> list[Any] | None:
    """Return the list when `prompts` holds several prompts, None when it is a single one."""
    if isinstance(prompts, str):
        return None
    if not isinstance(prompts, list | tuple) or not prompts:
        raise RippleError(
            f"A prompt is a non-empty string, list of token ids or list of chat messages, got {prompts!r}."
        )
    first = prompts[0]
    return list(prompts) if isinstance(first, str | list | tuple) else None


def token_ids(prompt: Any, text: Text | None, config: ModelConfig) -> Ints:
    """Return the prompt's token ids, or raise one sentence that says what is wrong with it."""
    if isinstance(prompt, str) or (
        isinstance(prompt, list | tuple) and prompt and isinstance(prompt[0], dict)
    ):
        if text is None:
            raise RippleError("This checkpoint has no tokenizer; give the prompt as a list of token ids.")
        ids = text.encode(prompt) if isinstance(prompt, str) else text.encode_chat(list(prompt))
    else:
        ids = list(prompt)
    if not ids:
        raise RippleError("The prompt is empty; give at least one token.")
    for token in ids:
        if isinstance(token, bool) or not isinstance(token, int | np.integer):
            raise RippleError(f"Token ids must be whole numbers, got {token!r}.")
        if not 0 <= token < config.vocab_size:
            raise RippleError(f"Token id {token} is outside the vocabulary of {config.vocab_size}.")
        if token == config.mask_id:
            raise RippleError("The prompt contains the mask token; only the response is decoded.")
    return np.array(ids, dtype=np.int64)
