"""What a finished request hands back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ripple.tokenizer import Tokenizer
from ripple.trace import Event

_SHOWN = 60  # characters of a text in a repr


@dataclass(frozen=True, repr=False)
class Result:
    """A decoded response and what it cost.

    NFE counts the forwards the request waited for; a lookahead with all its branches is one. `canvases`
    counts the canvases evaluated in them. `finish` says how the text ends:

    - `end`: with an end token; `stop`: at a stop string;
    - `length`: where the canvas ended;
    - `cancelled`: somebody cancelled the request; `incomplete`: the decoder left masks behind.

    By default the whole canvas is decoded whatever the text, and the counts are those of the whole canvas;
    `is_full` says whether they are. A canvas that grows is whole when it grows no further.
    """

    text: str  # new_tokens as text, special tokens left out; empty without a tokenizer
    token_ids: list[int]  # the response canvas as far as it has grown; mask ids where it stopped early
    new_tokens: list[int]  # up to and including the first end token
    nfe_normal: int
    nfe_lookahead: int
    canvases: int
    seconds: float  # from admission to the last commit
    engine_seconds: float  # its share of the engine's time: a tick counts in equal parts for all in it
    finish: str
    is_full: bool
    prompt_tokens: int
    causes: list[str | None]  # why each position of the canvas was committed
    trace: list[Event] | None = None
    tokenizer: Tokenizer | None = field(default=None, compare=False)
    n_limited: int = 0  # forwards after which `lookahead_budget` set a limit to the rows

    @property
    def nfe(self) -> int:
        """All forwards the request waited for."""
        return self.nfe_normal + self.nfe_lookahead

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"tokenizer": None}  # it stays in its process, whose locks cannot be pickled

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= _SHOWN else self.text[:_SHOWN] + "..."
        return (
            f"Result({text!r}, {len(self.new_tokens)} tokens, nfe={self.nfe} ({self.nfe_normal} normal + "
            f"{self.nfe_lookahead} lookahead), {self.seconds:.3f} s, finish={self.finish!r})"
        )

    def _repr_html_(self) -> str:
        """Return the response for a notebook: tokens coloured by cause, and what a trace tells."""
        from ripple.viewer.small import small_html

        pieces = [
            None if cause is None else self._piece(token)
            for token, cause in zip(self.token_ids, self.causes, strict=True)
        ]
        counts = (
            f"{len(self.new_tokens)} tokens · NFE {self.nfe} · {self.seconds:.3f} s · finish: {self.finish}"
        )
        return small_html(pieces, self.causes, counts, self.trace)

    def _piece(self, token: int) -> str:
        return f"{token} " if self.tokenizer is None else self.tokenizer.decode([token], skip_special=False)
