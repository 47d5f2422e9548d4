"""A conversation with a model in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ripple.chat.conversation import SentMessage, Turn
from ripple.options import Options
from ripple.trace import Event

if TYPE_CHECKING:
    from ripple.engine.engine import Engine


class LocalModel:
    """Answers with an engine that this process has loaded."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.name = name
        self._engine = engine

    def check(self, options: Options) -> None:
        """Raise if the model cannot be decoded like that."""
        self._engine.decoder_of(options)

    def piece(self, token: int) -> str:
        """Return a token's text."""
        tokenizer = self._engine.tokenizer
        return tokenizer.decode([token], skip_special=False) if tokenizer else f"<{token}>"

    def answer(
        self,
        messages: list[SentMessage],
        table: Mapping[str, Any],
        on_event: Callable[[Event], None],
        watch: bool,
    ) -> Turn:
        """Decode the answer; whoever interrupts cancels it."""
        request = self._engine.prepare(messages, Options.of(table))
        request.listen(on_event)
        for _ in self._engine.steps([request]):
            pass
        result = request.result()
        return Turn(
            result.text, len(result.new_tokens), result.nfe_normal, result.nfe_lookahead, result.seconds,
            result.finish,
        )  # fmt: skip
