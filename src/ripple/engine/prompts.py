"""Prompts at the border: text, token ids or chat messages in, checked token ids out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import torch

from ripple.canvas import Ints
from ripple.errors import RippleError
from ripple.models.base import ModelConfig
from ripple.tokenizer import Tokenizer


class Message(TypedDict):
    """One turn of a conversation."""

    role: str  # "system", "user" or "assistant"
    content: str


Array = npt.NDArray[Any] | torch.Tensor
OnePrompt = str | list[int] | tuple[int, ...] | list[Message] | list[dict[str, str]] | Array
Prompt = OnePrompt | Sequence[int] | Sequence[Message]


def many_prompts(prompts: Any) -> list[Any] | None:
    """Return the list when `prompts` holds several prompts, None when it is a single one."""
    if isinstance(prompts, str):
        return None
    if isinstance(prompts, np.ndarray | torch.Tensor):
        return list(prompts) if prompts.ndim == 2 else None
    if not isinstance(prompts, list | tuple) or not prompts:
        raise RippleError(
            f"A prompt is a non-empty string, a list of token ids or of chat messages, got {prompts!r}."
        )
    first = prompts[0]
    is_many = isinstance(first, str | list | tuple) or (
        isinstance(first, np.ndarray | torch.Tensor) and first.ndim > 0
    )
    return list(prompts) if is_many else None


def token_ids(prompt: Any, tokenizer: Tokenizer | None, config: ModelConfig) -> Ints:
    """Return the prompt's token ids, or raise one sentence that says what is wrong with it."""
    is_text = isinstance(prompt, str)
    if is_text or (isinstance(prompt, list | tuple) and prompt and isinstance(prompt[0], dict)):
        if tokenizer is None:
            raise RippleError("This checkpoint has no tokenizer; give the prompt as a list of token ids.")
        ids: Any = tokenizer.encode(prompt) if is_text else tokenizer.encode_chat(list(prompt))
        if config.mask_id in ids:  # somebody wrote the mask's name: it is text
            mask = tokenizer.spelled(config.mask_id)
            ids = [part for token in ids for part in (mask if token == config.mask_id else (token,))]
    else:
        ids = _listed(prompt)
    if not ids:
        raise RippleError("The prompt is empty; give at least one token.")
    for token in ids:
        if isinstance(token, bool | np.bool_) or not isinstance(token, int | np.integer):
            raise RippleError(f"Token ids must be whole numbers, got {token!r}.")
        if not 0 <= token < config.vocab_size:
            raise RippleError(f"Token id {token} is outside the vocabulary of {config.vocab_size}.")
        if token == config.mask_id:
            raise RippleError("The prompt contains the mask token; only the response is decoded.")
    return np.array(ids, dtype=np.int64)


def _listed(prompt: Any) -> list[Any]:
    """Return token ids as a list; arrays and tensors have one dimension."""
    if isinstance(prompt, np.ndarray | torch.Tensor):
        if prompt.ndim != 1:
            raise RippleError(f"An array of token ids has one dimension, got shape {list(prompt.shape)}.")
        listed: list[Any] = prompt.tolist()
        return listed
    if not isinstance(prompt, list | tuple):
        raise RippleError(
            f"A prompt is a non-empty string, a list of token ids or of chat messages, got {prompt!r}."
        )
    return list(prompt)
