"""The oracle ripple analysis: how much does resolving one position tell about the others?

The paper starts "from a partially decoded block", commits each masked position "to its oracle token" and
measures the entropy left elsewhere; it does not define the oracle further. Here the partial blocks are those
that one-token-per-step decoding passes through, on items that it then solves, and the oracle token of a
position is the token that this correct response has there. Every what-if is an exact plain forward.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ripple.canvas import Canvas, Window
from ripple.decoders import RPS, Decoder, Default
from ripple.decoders.base import Conversation
from ripple.engine.engine import Engine
from ripple.engine.prompts import Prompt
from ripple.engine.result import Result
from ripple.eval.searches import binary_entropy
from ripple.look import Ask, Look, Wants
from ripple.options import Options

TOP = 10  # ranks beyond this are not told apart
SHARES = (0.25, 0.5, 0.75)  # how much of a block is decoded when it is looked at
N_ITEMS = 16  # solved items per model and task
BLOCK = 32


class OraclePoint(NamedTuple):
    """One masked position, committed to its oracle token."""

    entropy: float  # its entropy before, nats
    rank: int  # of the oracle token there; TOP + 1 means beyond TOP
    reduction: float  # mean fall of the entropy of the block's other masked positions, nats
    n_others: int


@dataclass(frozen=True, eq=False)
class OracleReplay(Decoder):
    """Replay a known response and, at some moments, try every masked position's own token by itself."""

    name = "oracle"
    paper = "Ripple-Pivot Search, Figure 1 (right)"

    tokens: tuple[int, ...] = ()  # the response
    order: tuple[int, ...] = ()  # response positions, as they were committed
    points: list[OraclePoint] = field(default_factory=list)  # what has been seen

    @property
    def wants(self) -> Wants:
        """Ranks up to TOP."""
        return Wants(top=TOP)

    def decode(self, canvas: Canvas) -> Conversation:
        """Walk through the blocks that hold the response; what lies behind them is left masked."""
        first = canvas.prompt_len
        for window in canvas.windows():
            if window.start - first >= len(self.tokens):
                return
            order = [first + i for i in self.order if window.start <= first + i < window.stop]
            n_done = 0
            for share in SHARES:
                n_wanted = round(share * (window.stop - window.start))
                self._commit(canvas, order[n_done:n_wanted])
                n_done = max(n_done, n_wanted)
                yield from self._look(canvas, window)
            self._commit(canvas, order[n_done:])

    def _token(self, canvas: Canvas, pos: int) -> int:
        return self.tokens[pos - canvas.prompt_len]

    def _commit(self, canvas: Canvas, pos: Sequence[int]) -> None:
        tokens = [self._token(canvas, p) for p in pos]
        canvas.commit(
            np.array(pos, dtype=np.int64), np.array(tokens), np.ones(len(pos), np.float32), "oracle"
        )

    def _look(self, canvas: Canvas, window: Window) -> Conversation:
        masked = canvas.masked(window).tolist()
        if len(masked) < 2:
            return
        tokens = [self._token(canvas, p) for p in masked]
        answer = yield Ask(window, tuple(((p, t),) for p, t in zip(masked, tokens, strict=True)))
        self.points.extend(compared(answer.base, answer.branches, tokens))


def compared(base: Look, branches: Sequence[Look], tokens: Sequence[int]) -> list[OraclePoint]:
    """Compare the look before with each look after; row i of `base` was committed to token i."""
    points = []
    for i, (branch, token) in enumerate(zip(branches, tokens, strict=True)):
        others = np.arange(len(base)) != i
        fall = base.entropy[others].astype(np.float64) - branch.entropy
        hits = np.flatnonzero(base.top_token[i] == token)
        rank = int(hits[0]) + 1 if len(hits) else TOP + 1
        points.append(OraclePoint(float(base.entropy[i]), rank, float(fall.mean()), int(others.sum())))
    return points


def collect(
    engine: Engine, prompts: Sequence[Prompt], solved: Sequence[bool], traced: Sequence[Result], length: int
) -> list[OraclePoint]:
    """Analyse the solved ones among responses of one-token-per-step decoding, which came with traces."""
    triples = zip(prompts, solved, traced, strict=True)
    mine = [(prompt, replay(result)) for prompt, right, result in triples if right][:N_ITEMS]
    if mine:
        decoders = [decoder for _, decoder in mine]
        options = [Options(decoder, length, lookahead="batched") for decoder in decoders]
        engine.generate([prompt for prompt, _ in mine], options)
    return [point for _, decoder in mine for point in decoder.points]


def replay(result: Result) -> OracleReplay:
    """Return the decoder that walks through a traced response again, up to the block of its end token."""
    used = -(-len(result.new_tokens) // BLOCK) * BLOCK
    order = [
        pos - result.prompt_tokens
        for event in result.trace or []
        if event.kind == "commit"
        for pos in event.data["pos"]
    ]
    return OracleReplay(tuple(result.token_ids[:used]), tuple(order))


def decode_default(engine: Engine, prompts: Sequence[Prompt], length: int) -> list[Result]:
    """Decode one token per step, with traces."""
    return engine.generate(list(prompts), Options(Default(), length, trace=True))


# -- reading the points ---------------------------------------------------------------------------------


def band(rps: RPS | None = None) -> tuple[float, float]:
    """Return the mid-entropy regime in nats, as RPS's settings imply it.

    Below h(τ) a position would pass the standard commit; above log k_max no distribution can lie within
    the k_max tokens that a search may try.
    """
    rps = rps or RPS()
    return binary_entropy(rps.tau), math.log(rps.k_max)


def regimes(points: Sequence[OraclePoint]) -> dict[str, list[OraclePoint]]:
    """Sort points into entropies below, in and above the mid-entropy band."""
    low, high = band()
    return {
        "low": [p for p in points if p.entropy < low],
        "mid": [p for p in points if low <= p.entropy <= high],
        "high": [p for p in points if p.entropy > high],
    }


def summary(points: Sequence[OraclePoint]) -> Iterator[dict[str, Any]]:
    """Yield for each regime: points, mean entropy reduction elsewhere, share of oracle tokens not top-1."""
    for name, mine in regimes(points).items():
        n = len(mine)
        yield {
            "regime": name,
            "n": n,
            "reduction": sum(p.reduction for p in mine) / n if n else None,
            "not_top_1": sum(p.rank > 1 for p in mine) / n if n else None,
        }
