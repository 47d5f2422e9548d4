"""Labelled traces for the filter: what the model predicted on the way, and whether it was final.

Each prompt is decoded twice. The reference decoding says which tokens are final. Then an oracle decodes again
and commits, at every step, exactly the predictions that equal the final tokens, so that each of its looks
is a block as the filter will meet it, with the right answer known for every masked position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ripple.canvas import Canvas, Floats, Ints, Rows
from ripple.decoders import Decoder, Default
from ripple.decoders.base import Conversation
from ripple.engine.engine import Engine
from ripple.engine.prompts import Prompt
from ripple.look import Ask
from ripple.options import Options

OnDone = Callable[[int], object]  # is told how many more prompts or steps are done


class Traces(NamedTuple):
    """Looks at blocks: n rows of `block` positions."""

    p: Floats  # [n, block] top-1 probability; 1 where the position is revealed
    is_final: Rows  # [n, block] whether the prediction equals the final token
    is_masked: Rows  # [n, block] where there is a prediction at all
    prompt: Ints  # [n] number of the prompt; looks of one prompt resemble each other

    def part(self, rows: Rows) -> Traces:
        """Return the chosen looks."""
        return Traces(self.p[rows], self.is_final[rows], self.is_masked[rows], self.prompt[rows])


@dataclass(frozen=True, eq=False)
class FinalTokenOracle(Decoder):
    """Commits what equals the final tokens, and writes down what it saw."""

    name = "oracle"
    paper = "the greedy oracle of Learn2PD, arXiv 2509.25188"

    final: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # [L] the reference's response
    seen: list[tuple[Floats, Rows, Rows]] = field(default_factory=list)  # one row of `Traces` per forward

    def decode(self, canvas: Canvas) -> Conversation:
        """Fill each block with its final tokens, as early as the model predicts them."""
        for window in canvas.windows():
            while len(canvas.masked(window)):
                look = (yield Ask(window)).base
                final = self.final[look.pos - canvas.prompt_len]
                right = look.token == final
                at = look.pos - window.start
                p = np.ones(canvas.block, dtype=np.float32)
                is_final, is_masked = np.zeros((2, canvas.block), dtype=np.bool_)
                p[at], is_final[at], is_masked[at] = look.p, right, True
                self.seen.append((p, is_final, is_masked))
                if not right.any():  # nothing would change: the rest of the block is given away
                    right[:] = True
                canvas.commit(look.pos[right], final[right], look.p[right], "standard")


def collect(
    engine: Engine, prompts: Sequence[Prompt], length: int, block: int, reference: Decoder | None = None,
    on_done: OnDone = lambda n: None,
) -> Traces:  # fmt: skip
    """Decode every prompt twice and return what the oracle saw, in the order of the prompts."""
    first = Options(reference or Default(), length, block)
    rows: list[tuple[Floats, Rows, Rows]] = []
    owners: list[int] = []
    for start in range(0, len(prompts), engine.max_batch):
        batch = prompts[start : start + engine.max_batch]
        references = engine.generate(list(batch), first)
        finals = [np.array(result.token_ids, dtype=np.int64) for result in references]
        oracles = [FinalTokenOracle(final) for final in finals]
        engine.generate(list(batch), [Options(oracle, length, block) for oracle in oracles])
        rows += [row for oracle in oracles for row in oracle.seen]
        owners += [start + i for i, oracle in enumerate(oracles) for _ in oracle.seen]
        on_done(len(batch))
    p, is_final, is_masked = (np.stack(column) for column in zip(*rows, strict=True))
    return Traces(p, is_final, is_masked, np.array(owners, dtype=np.int64))
