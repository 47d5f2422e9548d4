"""LLaDA2.1's own rule: reveal early, and replace a revealed token that the model no longer believes."""

from __future__ import annotations

from dataclasses import dataclass

from ripple.canvas import Canvas, Rows
from ripple.decoders.base import Conversation, Decoder, commit, qualified_or_best
from ripple.fields import param
from ripple.look import Ask, Look


@dataclass(frozen=True)
class Edit(Decoder):
    """Reveal at P_max > τ; replace a token of the block by another one with P_max > τ_edit.

    Both happen in every step, from one forward in which each token sees itself. A block ends with the first
    forward that finds no mask and nothing to replace. Earlier blocks stay as they are.
    """

    name = "edit"
    paper = "LLaDA2.1"
    revokes = True

    tau: float = param(0.95, "τ: reveal above this confidence", within="[0, 1]")
    tau_edit: float = param(0.9, "τ_edit: replace a token by another one above this", within="[0, 1]")
    post_steps: int = param(16, "forwards that a block without masks may have", within="[1, inf)")

    @property
    def idle_forwards(self) -> int:
        """Forwards of a block that only edit."""
        return self.post_steps

    def decode(self, canvas: Canvas) -> Conversation:
        """Reveal and replace until each block is full and stays as it is."""
        for window in canvas.windows():
            n_left = self.post_steps
            while n_left:
                answer = yield Ask(window, reread=True)
                look, known = answer.base, answer.reread
                if len(look):
                    commit(canvas, look, qualified_or_best(look.p > self.tau, look.p))
                n_left -= not len(look)
                wrong = self._wrong(canvas, known)
                if wrong.any():
                    canvas.revoke(known.pos[wrong], "edit")
                    commit(canvas, known, (wrong, "edit"))
                elif not len(look):
                    break

    def _wrong(self, canvas: Canvas, known: Look) -> Rows:
        """Choose the revealed rows where another token is likely enough."""
        wrong: Rows = (known.token != canvas.ids[known.pos]) & (known.p > self.tau_edit)
        return wrong
