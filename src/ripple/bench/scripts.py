"""Decoders that follow a script instead of the model, so that a schedule's cost can be measured alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ripple.canvas import Canvas, Window
from ripple.decoders import Decoder
from ripple.decoders.base import Conversation
from ripple.errors import RippleError
from ripple.look import Ask, Wants

TOP = 10  # most probable tokens per row, as RPS reads them
Schedule = tuple[tuple[int, ...], ...]  # for each block, the number of branches of each of its forwards


def lookahead(canvas: Canvas, window: Window, n_branches: int) -> Ask:
    """Ask for a forward that tries n tokens at the window's first mask, as RPS does."""
    if n_branches == 0:
        return Ask(window)
    pivot = int(canvas.masked(window)[0])
    tokens = [token for token in range(n_branches + 1) if token != canvas.mask_id][:n_branches]
    return Ask(
        window,
        branches=tuple(((pivot, token),) for token in tokens),
        probes=tuple((0, pivot, token) for token in tokens),
    )


@dataclass(frozen=True)
class Hold(Decoder):
    """Ask for the same forward again and again and commit nothing."""

    name = "hold"
    paper = "a benchmark's script"

    branches: int = 0
    block_number: int = 0

    @property
    def wants(self) -> Wants:
        """As RPS."""
        return Wants(top=TOP)

    def decode(self, canvas: Canvas) -> Conversation:
        """Never end; whoever measures cancels the request."""
        window = list(canvas.windows())[self.block_number]
        while True:
            yield lookahead(canvas, window, self.branches)


@dataclass(frozen=True)
class Scripted(Decoder):
    """Run a schedule: so many forwards per block, each with so many branches, and fill the block evenly."""

    name = "scripted"
    paper = "a benchmark's script"

    schedule: Schedule = ()

    @property
    def wants(self) -> Wants:
        """As RPS."""
        return Wants(top=TOP)

    def decode(self, canvas: Canvas) -> Conversation:
        """Commit the model's own tokens, an even share of the block after each forward."""
        windows = list(canvas.windows())
        if len(windows) != len(self.schedule):
            raise RippleError(f"The schedule has {len(self.schedule)} blocks, the canvas {len(windows)}.")
        for window, forwards in zip(windows, self.schedule, strict=True):
            for left, n_branches in zip(range(len(forwards), 0, -1), forwards, strict=True):
                answer = yield lookahead(canvas, window, n_branches)
                look = answer.base
                n = -(-len(look) // left)
                canvas.commit(look.pos[:n], look.token[:n], look.p[:n], "standard")


def spread(n_normal: float, n_lookahead: float, branches: float, n_blocks: int, n: int) -> Iterator[Schedule]:
    """Yield n schedules whose means are the given ones: every block opens with a normal forward.

    Fractions are carried from block to block and from schedule to schedule, so sums come out right.
    """
    rest_normal = rest_lookahead = rest_branches = 0.0
    for _ in range(n):
        blocks: list[tuple[int, ...]] = []
        for _ in range(n_blocks):
            rest_normal += n_normal / n_blocks - 1
            rest_lookahead += n_lookahead / n_blocks
            more, looks = max(0, round(rest_normal)), max(0, round(rest_lookahead))
            rest_normal, rest_lookahead = rest_normal - more, rest_lookahead - looks
            tries = []
            for _ in range(looks):
                rest_branches += branches
                tries.append(max(1, round(rest_branches)))
                rest_branches -= tries[-1]
            blocks.append((0, *np.random.default_rng(len(blocks)).permutation([0] * more + tries).tolist()))
        yield tuple(blocks)
