"""What a finished request hands back, and the settings it was asked with."""

from __future__ import annotations

from dataclasses import dataclass, field

from ripple.caches import Cache, NoCache
from ripple.decoders import RPS, Decoder
from ripple.errors import RippleError, unknown
from ripple.trace import Event

LOOKAHEADS = ("packed", "batched")


@dataclass(frozen=True)
class Settings:
    """How one prompt is decoded."""

    decoder: Decoder = field(default_factory=RPS)
    length: int = 256  # L, response positions
    block: int = 32  # B, positions per block
    cache: Cache = field(default_factory=NoCache)
    lookahead: str = "packed"  # or "batched": exact branches, one row each
    seed: int = 0
    temperature: float = 0.0  # 0 = greedy
    stop_at_end: bool = False  # stop at the first settled end token instead of filling the canvas
    stop: tuple[str, ...] = ()  # stop when the settled text contains one of these, and cut there
    trace: bool = False

    def __post_init__(self) -> None:
        for name in ("length", "block"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise RippleError(f"{name} must be a whole number of at least 1, got {value!r}.")
        if self.block > self.length:
            raise RippleError(f"block must not exceed length {self.length}, got {self.block}.")
        if self.lookahead not in LOOKAHEADS:
            raise unknown("lookahead", self.lookahead, LOOKAHEADS)
        if not 0 <= self.temperature < float("inf"):
            raise RippleError(f"temperature must be 0 or a positive number, got {self.temperature!r}.")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise RippleError(f"seed must be a whole number of at least 0, got {self.seed!r}.")
        if isinstance(self.stop, str) or not all(isinstance(s, str) and s for s in self.stop):
            raise RippleError(f"stop must be a list of non-empty strings, got {self.stop!r}.")


@dataclass(frozen=True)
class Result:
    """A decoded response and what it cost.

    NFE counts the forwards the request waited for; a lookahead with all its branches is one. `rows` counts
    the canvases evaluated in them. `finish` says whether the counts cover the full canvas ("length")
    or an early stop ("end", "stop", "cancelled").
    """

    text: str  # new_tokens as text, special tokens left out; empty without a tokenizer
    token_ids: list[int]  # the whole response canvas; mask ids where it stopped early
    new_tokens: list[int]  # up to and including the first end token
    nfe_normal: int
    nfe_lookahead: int
    rows: int
    seconds: float  # from admission to the last commit
    finish: str
    prompt_tokens: int
    trace: list[Event] | None = None

    @property
    def nfe(self) -> int:
        """All forwards the request waited for."""
        return self.nfe_normal + self.nfe_lookahead
