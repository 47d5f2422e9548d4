"""The objects that a client gets, in OpenAI's two dialects: completions and chats, whole and in chunks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from ripple.engine.result import Result
from ripple.server.logprobs import Scored, as_chat, as_completion
from ripple.trace import as_line

Json = dict[str, Any]

FINISH_REASONS = {
    "end": "stop", "stop": "stop", "length": "length", "incomplete": "length", "cancelled": "length",
}  # fmt: skip


class Reply:
    """One answer in the making."""

    def __init__(self, model: str, is_chat: bool) -> None:
        self.is_chat = is_chat
        self.id = ("chatcmpl-" if is_chat else "cmpl-") + uuid.uuid4().hex
        self._model = model
        self._created = int(time.time())

    def whole(
        self, results: Sequence[Result], n: int, heads: Sequence[str], scored: Sequence[list[Scored] | None]
    ) -> Json:
        """Return a whole answer; `heads` stand before the texts, `scored` are the log probabilities."""
        choices = [
            self._choice(i, head + result.text, self._logprobs(tokens, 0), result)
            for i, (result, head, tokens) in enumerate(zip(results, heads, scored, strict=True))
        ]
        return self._object(choices) | {"usage": usage(results, n), "ripple": total_cost(results)}

    def role(self, index: int) -> Json:
        """Return the first chunk of a chat's choice."""
        delta = {"role": "assistant", "content": ""}
        return self._chunk([{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}])

    def text(self, index: int, text: str, scored: list[Scored] | None = None, offset: int = 0) -> Json:
        """Return a chunk with some more text."""
        return self._chunk([self._part(index, text, self._logprobs(scored, offset), None)])

    def end(self, index: int, result: Result, scored: list[Scored] | None = None, offset: int = 0) -> Json:
        """Return the last chunk of a choice."""
        reason = FINISH_REASONS[result.finish]
        part = self._part(index, "", self._logprobs(scored, offset), reason)
        return self._chunk([part | {"ripple": _story(result)}])

    def frame(self, frame: Json) -> Json:
        """Return a chunk that has a frame of the canvas and no text."""
        return self._chunk([]) | {"ripple": frame}

    def last(self, results: Sequence[Result], n: int) -> Json:
        """Return the chunk with the usage, which has no choices."""
        return self._chunk([]) | {"usage": usage(results, n)}

    # -- parts --------------------------------------------------------------------------------------

    def _object(self, choices: list[Json]) -> Json:
        kind = "chat.completion" if self.is_chat else "text_completion"
        return {
            "id": self.id, "object": kind, "created": self._created, "model": self._model, "choices": choices,
        }  # fmt: skip

    def _chunk(self, choices: list[Json]) -> Json:
        made = self._object(choices)
        return made | {"object": "chat.completion.chunk"} if self.is_chat else made

    def _choice(self, index: int, text: str, logprobs: Json | None, result: Result) -> Json:
        said = {"message": {"role": "assistant", "content": text}} if self.is_chat else {"text": text}
        return {
            "index": index, **said, "logprobs": logprobs, "finish_reason": FINISH_REASONS[result.finish],
            "ripple": _story(result),
        }  # fmt: skip

    def _part(self, index: int, text: str, logprobs: Json | None, reason: str | None) -> Json:
        said: Json = {"text": text}
        if self.is_chat:
            said = {"delta": {"content": text} if text else {}}
        return {"index": index, **said, "logprobs": logprobs, "finish_reason": reason}

    def _logprobs(self, scored: list[Scored] | None, offset: int) -> Json | None:
        if scored is None:
            return None
        return as_chat(scored) if self.is_chat else as_completion(scored, offset)


def usage(results: Sequence[Result], n: int) -> Json:
    """Count tokens; a prompt counts once, however many choices it has."""
    prompt = sum(result.prompt_tokens for result in results[::n])
    completion = sum(len(result.new_tokens) for result in results)
    return {
        "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
    }  # fmt: skip


def cost(result: Result) -> Json:
    """Return what one choice cost."""
    return {
        "nfe": result.nfe, "normal": result.nfe_normal, "lookahead": result.nfe_lookahead,
        "canvases": result.canvases, "seconds": round(result.seconds, 6), "finish": result.finish,
    }  # fmt: skip


def _story(result: Result) -> Json:
    """Return what one choice cost and, if it was asked for, its trace."""
    trace = {} if result.trace is None else {"trace": [as_line(event) for event in result.trace]}
    return cost(result) | trace


def total_cost(results: Sequence[Result]) -> Json:
    """Return what all choices cost; they were decoded side by side, so the longest time counts."""
    costs = [cost(result) for result in results]
    finishes = {one["finish"] for one in costs}
    return {
        **{name: sum(one[name] for one in costs) for name in ("nfe", "normal", "lookahead", "canvases")},
        "seconds": max(one["seconds"] for one in costs),
        "finish": finishes.pop() if len(finishes) == 1 else None,
    }
