"""Log probabilities of committed tokens: those that the model gave them when they were committed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from ripple.tokenizer import Tokenizer
from ripple.trace import Event

LOWEST = -9999.0  # of a token that had no probability at all


class Scored(NamedTuple):
    """One token: the text that it completes, and its log probability."""

    text: str
    logprob: float | None  # None for tokens of a prompt


class CommitLog:
    """Follows the commits of one response and hands its tokens out in the order of the text."""

    def __init__(self, tokenizer: Tokenizer | None, prompt_len: int) -> None:
        self._pieces = Pieces(tokenizer)
        self._next = prompt_len  # the position that is handed out next
        self._held: dict[int, tuple[int, float]] = {}  # position -> token, probability
        self._ready: Scored | None = None  # its text has not been told yet
        self.n_taken = self.n_chars = 0  # tokens that were handed out, and their characters

    def feed(self, events: Iterable[Event]) -> None:
        """Take in what was committed and revoked."""
        for event in events:
            data = event.data
            if event.kind == "commit":
                pairs = zip(data["token"], data["p"], strict=True)
                self._held.update(zip(data["pos"], pairs, strict=True))
            elif event.kind == "revoke":
                for pos in data["pos"]:
                    del self._held[pos]

    def take(self, n_chars: int) -> list[Scored]:
        """Return the next tokens, as far as their text is among the first `n_chars` of the response.

        What follows is not looked at: it may be revoked, or stand after the end.
        """
        taken: list[Scored] = []
        while self.n_chars < n_chars and (scored := self._peek()) is not None:
            if self.n_chars + len(scored.text) > n_chars:
                break
            self._pass(scored)
            taken.append(scored)
        return taken

    def rest(self, n_tokens: int, n_chars: int) -> list[Scored]:
        """Return what is left of a response of so many tokens, cut where its text of `n_chars` ends."""
        taken: list[Scored] = []
        while self.n_taken < n_tokens and (scored := self._peek()) is not None:
            if self.n_chars >= n_chars and scored.text:
                break
            text = scored.text[: max(0, n_chars - self.n_chars)]
            self._pass(scored)
            taken.append(Scored(text, scored.logprob))
        if taken and (held := self._pieces.rest()[: max(0, n_chars - self.n_chars)]):
            taken[-1] = taken[-1]._replace(text=taken[-1].text + held)
        return taken

    def _pass(self, scored: Scored) -> None:
        self.n_taken += 1
        self.n_chars += len(scored.text)
        self._ready = None
        self._next += 1

    def _peek(self) -> Scored | None:
        if self._ready is None and self._next in self._held:
            token, p = self._held.pop(self._next)
            self._ready = Scored(self._pieces.add(token), math.log(p) if p > 0 else LOWEST)
        return self._ready


BROKEN = "\ufffd"  # what stands for bytes that are no character, or not yet
MOST_OPEN = 64  # tokens after which broken bytes are taken to stay so


class Pieces:
    """Cuts a text into what each token adds; a character belongs to the token that completes it."""

    def __init__(self, tokenizer: Tokenizer | None, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._open: list[int] = []  # tokens since the last one that ended with a whole character
        self._n_told = 0  # characters of theirs

    def add(self, token: int) -> str:
        """Return the text that one more token adds."""
        self._open.append(token)
        text = self._text()
        if text.endswith(BROKEN) and len(self._open) < MOST_OPEN:
            text = text.rstrip(BROKEN)
            told, self._n_told = self._n_told, len(text)
            return text[told:]
        return self.rest()

    def rest(self) -> str:
        """Return what was held back, for no token follows that could complete it."""
        text = self._text()[self._n_told :]
        self._open.clear()
        self._n_told = 0
        return text

    def _text(self) -> str:
        return "" if self._tokenizer is None else self._tokenizer.decode(self._open, self._skip_special)


def of_prompt(ids: Iterable[int], tokenizer: Tokenizer | None) -> list[Scored]:
    """Return the tokens of a prompt, which have no probabilities."""
    pieces = Pieces(tokenizer, skip_special=False)
    texts = [pieces.add(token) for token in ids]
    texts[-1] += pieces.rest()
    return [Scored(text, None) for text in texts]


def as_completion(scored: list[Scored], offset: int) -> dict[str, Any]:
    """Return log probabilities as /v1/completions has them; `offset` is that of the first character."""
    offsets = []
    for one in scored:
        offsets.append(offset)
        offset += len(one.text)
    return {
        "tokens": [one.text for one in scored],
        "token_logprobs": [one.logprob for one in scored],
        "top_logprobs": [None if one.logprob is None else {one.text: one.logprob} for one in scored],
        "text_offset": offsets,
    }


def as_chat(scored: list[Scored]) -> dict[str, Any]:
    """Return log probabilities as /v1/chat/completions has them."""
    rows = [{"token": one.text, "logprob": one.logprob, "bytes": list(one.text.encode())} for one in scored]
    return {"content": [row | {"top_logprobs": [row]} for row in rows], "refusal": None}
