"""Decoders that follow a script instead of the model, so that a schedule's cost can be measured alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ripple.canvas import BlockCanvas, Canvas, Ints, Window
from ripple.decoders import Decoder
from ripple.decoders.base import Conversation
from ripple.errors import RippleError
from ripple.fields import param
from ripple.look import Ask, Wants
from ripple.schedule import ScheduledForward

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


def fill(canvas: Canvas, pos: Ints, below: int) -> None:
    """Commit arbitrary tokens: what stands there changes no cost, but experts want them to differ."""
    tokens = canvas.rng.integers(below, size=len(pos))
    canvas.commit(pos, tokens, np.ones(len(pos), dtype=np.float32), "standard")


def open_blocks(canvas: Canvas) -> dict[int, Window]:
    """Return the blocks that can be decoded now, by number: all, or the last one of a canvas that grows."""
    origin = canvas.prompt_len + 1
    return {(window.stop - origin) // canvas.block: window for window in canvas.windows()}


def grows(canvas: Canvas) -> bool:
    """Whether the canvas is decoded block by block."""
    return isinstance(canvas, BlockCanvas)


@dataclass(frozen=True, kw_only=True)
class Script(Decoder):
    """A decoder that asks for what it is told."""

    paper = "a benchmark's script"

    tokens: int = param(10, "tokens below this are committed", within="[1, inf)")

    @property
    def wants(self) -> Wants:
        """As RPS."""
        return Wants(top=TOP)


@dataclass(frozen=True)
class Hold(Script):
    """Ask for the same forward again and again and commit nothing."""

    name = "hold"

    branches: int = param(0, "branches of every forward", within="[0, 256]")
    block_number: int = param(0, "which block is looked at", within="[0, inf)")

    def decode(self, canvas: Canvas) -> Conversation:
        """Never end; whoever measures cancels the request.

        A canvas that grows is filled up to the block, which has one forward before it is held, and then every
        second token: rows that are all masks would go to the same experts.
        """
        blocks = open_blocks(canvas)
        if grows(canvas):
            (number,) = blocks
            yield Ask(blocks[number])
            masked = canvas.masked(blocks[number])
            if number < self.block_number:
                fill(canvas, masked, self.tokens)
                return
            fill(canvas, masked[::2], self.tokens)
        while True:
            yield lookahead(canvas, blocks[self.block_number], self.branches)


@dataclass(frozen=True)
class Scripted(Script):
    """Run a schedule: so many forwards per block, each with so many branches, and fill the block evenly."""

    name = "scripted"

    schedule: Schedule = ()

    def decode(self, canvas: Canvas) -> Conversation:
        """Fill an even share of the block after each forward."""
        n_blocks = -(-(canvas.max_len - canvas.prompt_len) // canvas.block)
        if n_blocks != len(self.schedule):
            raise RippleError(f"The schedule has {len(self.schedule)} blocks, the canvas {n_blocks}.")
        for number, window in open_blocks(canvas).items():
            forwards = self.schedule[number]
            for left, n_branches in zip(range(len(forwards), 0, -1), forwards, strict=True):
                masked = canvas.masked(window)
                if not len(masked):
                    break  # a model that predicts the block's first token leaves one less
                yield lookahead(canvas, window, n_branches)
                fill(canvas, masked[: -(-len(masked) // left)], self.tokens)


@dataclass(frozen=True)
class Played(Script):
    """Repeat a recorded decoding: its windows, its branches, and the positions filled after each forward."""

    name = "played"

    forwards: tuple[ScheduledForward, ...] = ()
    end: int = param(0, "the token committed after the last forward, which ends a canvas that grows")

    def decode(self, canvas: Canvas) -> Conversation:
        """Ask for the forwards of the open block; all of them, where the canvas does not grow."""
        zero = canvas.prompt_len
        opened = canvas.block_at(len(canvas.ids) - 1).start if grows(canvas) else zero
        for one in self.forwards:
            start, stop = zero + one.start, zero + one.stop
            if opened < stop and start < len(canvas.ids):
                yield lookahead(canvas, Window(start, stop), one.branches)
                canvas.revoke(zero + np.array(one.revokes, dtype=np.int64), "revoked")
                pos = zero + np.array(one.commits, dtype=np.int64)
                if one is self.forwards[-1] and len(pos):
                    fill(canvas, pos[:-1], self.tokens)
                    pos, p = pos[-1:], np.ones(1, dtype=np.float32)
                    canvas.commit(pos, np.array([self.end]), p, "standard")
                else:
                    fill(canvas, pos, self.tokens)


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
