"""What was tried beyond glide: ideas that are not in the decoder, to be measured beside it.

    PYTHONPATH=tools/glide_variants ripple bench decoders --decoders glide,glide-variant:gate=0.5 ...

The folder registers `glide-variant` as any other package would. docs/glide.md says what came of each idea.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ripple.canvas import Canvas, Rows, Window
from ripple.decoders import Glide
from ripple.decoders.base import Conversation
from ripple.decoders.glide import Pivot, Trial
from ripple.decoders.rps import Doubles, score
from ripple.fields import param
from ripple.look import Answer, Look


@dataclass(frozen=True)
class GlideVariant(Glide):
    """Glide with one idea more; each field at its default changes nothing."""

    name = "glide-variant"
    paper = "experiments of this project"

    gate: float = param(0.0, "a second pivot only where p(2nd token) / p(1st) of the first one reaches this")
    relative: bool = param(False, "entropies in the score as a share of the anchor's: λ from the data")
    share: float | None = param(None, "the cap as a share of the window's nats, in place of `cap`")
    settle: float | None = param(
        None, "window: ends where this many nats lie to the left, by the last look that read it"
    )

    def decode(self, canvas: Canvas) -> Conversation:
        """Decode as glide; with `settle`, remember where the last look saw that many nats."""
        if self.settle is None:
            yield from super().decode(canvas)
            return
        stop = len(canvas.ids)
        conversation = _Narrowed(self, canvas)
        answer = None
        while True:
            try:
                ask = conversation.glide.send(answer)
            except StopIteration:
                return
            window = ask.window
            if ask.branches:  # a lookahead: what lies behind so much entropy is guesswork anyway
                edits = max(pos for branch in ask.branches for pos, _ in branch)
                stop = max(edits + 1, conversation.edge)
                window = Window(window.start, min(window.stop, stop))
            answer = yield replace(ask, window=window)
            conversation.remember(answer.base, self.settle)

    def _near(self, look: Look) -> Rows:
        if self.share is None:
            return super()._near(look)
        entropy = look.entropy.astype(np.float64)
        near: Rows = np.cumsum(entropy) - entropy <= self.share * entropy.sum()
        return near

    def _pivots(self, look: Look, canvas: Canvas) -> list[Pivot]:
        pivots = super()._pivots(look, canvas)
        if len(pivots) < 2 or not self.gate:
            return pivots
        p = look.top_p[int(np.flatnonzero(look.pos == pivots[0].pos)[0])]
        return pivots if p[1] >= self.gate * p[0] else pivots[:1]

    def _scores(self, answer: Answer, pivots: list[Pivot], candidates: list[Trial]) -> Doubles:
        if not self.relative:
            return super()._scores(answer, pivots, candidates)
        base = max(answer.base.mean_entropy([pivot.pos for pivot in pivots]), 1e-6)
        plain = replace(self, relative=False, lam=0.0)._scores(answer, pivots, candidates)
        both = replace(self, relative=False, lam=1.0)._scores(answer, pivots, candidates)
        return score(-plain / base, np.exp(both - plain), self.lam)


class _Narrowed:
    """A conversation of plain glide, and where its last look saw so many nats."""

    def __init__(self, variant: GlideVariant, canvas: Canvas) -> None:
        self.glide = Glide.decode(variant, canvas)
        self.edge = len(canvas.ids)

    def remember(self, look: Look, nats: float) -> None:
        """Note the first position with more than so many nats to its left."""
        far = np.flatnonzero(np.cumsum(look.entropy.astype(np.float64)) > nats)
        self.edge = int(look.pos[far[0]]) if len(far) else 1 << 30
