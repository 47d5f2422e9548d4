"""Which part of a response is final, and its text: end tokens, stop strings, what may be streamed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ripple.canvas import Canvas, Window
from ripple.models.base import ModelConfig
from ripple.tokenizer import Tokenizer


class ResponseReader:
    """Reads one request's response off its canvas."""

    def __init__(
        self, canvas: Canvas, config: ModelConfig, tokenizer: Tokenizer | None, stops: Sequence[str]
    ) -> None:
        self._canvas = canvas
        self._config = config
        self._tokenizer = tokenizer
        self._stops = stops

    def final_tokens(self, open_window: Window | None, revokes: bool) -> list[int]:
        """Return the tokens that can no longer change: up to the first mask, or the open block.

        A decoder that revokes may still change every token of the open block.
        """
        canvas = self._canvas
        masked = np.flatnonzero(canvas.response == canvas.mask_id)
        stop = int(masked[0]) if len(masked) else len(canvas.response)
        if open_window is not None and revokes:
            stop = min(stop, open_window.start - canvas.prompt_len)
        tokens: list[int] = canvas.response[:stop].tolist()
        return tokens

    def until_end(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens up to and including the first end token."""
        ends = [i for i, token in enumerate(tokens) if token in self._config.end_ids]
        return list(tokens[: ends[0] + 1] if ends else tokens)

    def has_end(self, tokens: Sequence[int]) -> bool:
        """Say whether an end token is among the tokens."""
        return any(token in self._config.end_ids for token in tokens)

    def text(self, tokens: Sequence[int]) -> str:
        """Return tokens as text, without masks, cut at the first stop string."""
        text = self.decoded(tokens)
        cut = self.stop_at(text)
        return text if cut is None else text[:cut]

    def decoded(self, tokens: Sequence[int]) -> str:
        """Return tokens as text, without masks; empty without a tokenizer."""
        if self._tokenizer is None:
            return ""
        return self._tokenizer.decode([token for token in tokens if token != self._config.mask_id])

    def stop_at(self, text: str) -> int | None:
        """Return where the stop string begins that is complete first, however the text arrives; or None."""
        ends = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        return min(ends)[1] if ends else None

    def streamable(self, tokens: Sequence[int]) -> str:
        """Return the text of final tokens that later tokens cannot change or cut off.

        Characters whose bytes are not all there are held back, and so is the beginning of a stop string.
        """
        text = self.decoded(tokens)
        cut = self.stop_at(text)
        if cut is not None:
            return text[:cut]
        text = text.rstrip("\ufffd")
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        return text[: len(text) - held]


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of a text begin a stop string."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
