"""A conversation: what was said, how it is decoded, and who answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from ripple.errors import RippleError
from ripple.files import write_whole
from ripple.options import Options, merged
from ripple.trace import Event

SentMessage = dict[str, str]


@dataclass(frozen=True)
class Turn:
    """One answer and what it cost."""

    text: str
    n_tokens: int
    nfe_normal: int
    nfe_lookahead: int
    seconds: float
    finish: str

    def describe(self) -> str:
        """Return the counts as one line."""
        nfe = self.nfe_normal + self.nfe_lookahead
        tokens = f"{self.n_tokens} token{'' if self.n_tokens == 1 else 's'}"
        return f"NFE {nfe} · {tokens}, {self.n_tokens / max(nfe, 1):.2f} per forward · {self.seconds:.3f} s"


class Answerer(Protocol):
    """A model that answers: in this process or on a server."""

    name: str

    def check(self, options: Options) -> None:
        """Raise what can be said against the options before anything is asked."""
        ...

    def piece(self, token: int) -> str:
        """Return the text of one token that an event has named."""
        ...

    def answer(
        self,
        messages: list[SentMessage],
        table: Mapping[str, Any],
        on_event: Callable[[Event], None],
        watch: bool,
    ) -> Turn:
        """Answer, telling each event: always those of text, and all others if somebody watches."""
        ...


class Chat:
    """What was said so far; a question that fails or is interrupted leaves no trace."""

    def __init__(self, model: Answerer, table: Mapping[str, Any], system: str | None = None) -> None:
        self._model = model
        self._system = system
        self.table = dict(table)  # options as they were given, the fields of decoder and cache among them
        self.turns: list[Turn] = []
        self.messages: list[SentMessage] = []
        self.reset()

    def reset(self) -> None:
        """Forget everything but the system message."""
        self.turns.clear()
        self.messages = [] if self._system is None else [{"role": "system", "content": self._system}]

    def change(self, given: Mapping[str, Any]) -> None:
        """Change options; the fields of a decoder or cache that is replaced are dropped."""
        table = merged(self.table, given)
        self._model.check(Options.of(table))
        self.table = table

    def ask(self, text: str, on_event: Callable[[Event], None], watch: bool = False) -> Turn:
        """Ask and return the answer."""
        asked = [*self.messages, {"role": "user", "content": text}]
        turn = self._model.answer(asked, self.table, on_event, watch)
        self.messages = [*asked, {"role": "assistant", "content": turn.text}]
        self.turns.append(turn)
        return turn

    def save(self, path: str | Path) -> None:
        """Write the conversation: as Markdown if the name ends so, else as one JSON object."""
        if not self.turns:
            raise RippleError("There is nothing to save yet.")
        if Path(path).suffix.lower() in (".md", ".markdown"):
            parts = (f"**{message['role']}**\n\n{message['content']}\n" for message in self.messages)
            text = "\n".join(parts)
        else:
            facts = {"model": self._model.name, "options": self.table, "messages": self.messages}
            text = json.dumps(facts | {"turns": [asdict(turn) for turn in self.turns]}, indent=2) + "\n"
        write_whole(path, text, "the conversation")
