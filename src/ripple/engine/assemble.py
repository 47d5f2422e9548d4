"""A group of strips becomes the tensors of one forward: written once on the host, copied once to the device.

All integers of a forward lie in one flat array; the `Forward` is a set of views of it. So a forward costs
one copy, and a captured graph, whose inputs must stay where they are, is fed by overwriting one buffer.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from ripple.canvas import Ints
from ripple.engine.plan import Group
from ripple.models.forward import Forward

POSITIONS = np.arange(1 << 17)  # slices of it are cheaper than ranges made anew


class Shape(NamedTuple):
    """Everything about a forward that its tensors' sizes depend on."""

    s: int  # batch rows
    r: int  # live rows of each
    g: int  # branches of each
    w: int  # rows of a branch
    n_keys: int
    n_read: int
    has_slots: bool
    keeps: bool

    @property
    def t(self) -> int:
        """Rows of one batch row."""
        return self.r + self.g * self.w


class Section(NamedTuple):
    """One part of the flat array."""

    name: str
    start: int
    stop: int
    size: tuple[int, ...]


@lru_cache(maxsize=1024)
def sections(shape: Shape) -> list[Section]:
    """Return the parts of the flat array, in order."""
    s, g = shape.s, shape.g
    sizes = {
        "ids": (s, shape.t), "pos": (s, shape.t), "hidden": (s, g * shape.w, 2), "own_len": (s, g),
        "key_len": (s,), "slots": (s,), "keep": (s,), "read": (shape.n_read,),
    }  # fmt: skip
    found, at = [], 0
    for name, size in sizes.items():
        n = math.prod(size)
        found.append(Section(name, at, at + n, size))
        at += n
    return found


def shape_of(of: Group, n_read: int) -> Shape:
    """Return the shape that a group needs, without padding."""
    strips = of.strips
    has_slots, keeps = strips[0].slot is not None, strips[0].keeps is not None
    n_keys = max(strip.n_keys for strip in strips)
    return Shape(len(strips), of.r, of.g, of.w, n_keys, n_read, has_slots, keeps)


class Sheet:
    """One forward's integers on the host: a flat array, and its parts as views of it."""

    def __init__(self, shape: Shape, flat: Ints | None = None) -> None:
        """Lay the parts over `flat`, or over a new array."""
        parts = sections(shape)
        self.shape = shape
        self.flat: Ints = np.zeros(parts[-1].stop, dtype=np.int64) if flat is None else flat
        self.shares_slots = False
        views = [self.flat[start:stop].reshape(size) for _, start, stop, size in parts]
        self.ids, self.pos, self.hidden, self.own_len, self.key_len, self.slots, self.keep, self.read = views

    @property
    def per_strip(self) -> tuple[Ints, ...]:
        """The parts whose first dimension counts batch rows."""
        return self.ids, self.pos, self.hidden, self.own_len, self.key_len, self.slots, self.keep


def pack(of: Group, read: Ints, to: Sheet) -> Sheet:
    """Write a group onto a sheet whose shape holds it, and return the sheet.

    Padding repeats real rows, so it can never produce a NaN and writes nothing new to the key store.
    `read` counts rows of the group's own width, which padding may widen.
    """
    shape, ids, pos = to.shape, to.ids, to.pos
    r, w = shape.r, shape.w
    to.flat.fill(0)
    to.own_len.fill(w)
    for i, strip in enumerate(of.strips):
        have = len(strip.pos)
        ids[i, :have], pos[i, :have] = strip.ids, strip.pos
        if have < r:
            ids[i, have:r], pos[i, have:r] = strip.ids[-1], strip.pos[-1]
        b = 0
        for some in strip.branches:
            n, m = some.ids.shape
            _grid(ids[i], r, b, n, w)[:, :m] = some.ids
            _grid(pos[i], r, b, n, w)[:, :m] = POSITIONS[some.start : some.start + m]
            hidden = to.hidden[i, b * w : (b + n) * w].reshape(n, w, 2)
            hidden[:, :m, 0], hidden[:, :m, 1] = some.hidden
            to.own_len[i, b : b + n] = m
            b += n
        to.key_len[i] = strip.n_keys
        to.slots[i] = strip.slot or 0
        to.keep[i] = strip.keeps or 0
    n = len(of.strips)
    if n < shape.s:
        for part in to.per_strip:
            part[n:] = part[0]
    to.read[: len(read)] = read if shape.t == of.n_rows else _widened(read, of, shape)
    to.shares_slots = of.shares_slots
    return to


def _grid(row: Ints, r: int, first: int, n: int, w: int) -> Ints:
    """Return n branches of a batch row, from the first one on, as a view [n, w]."""
    at = r + first * w
    return row[at : at + n * w].reshape(n, w)


def _widened(read: Ints, of: Group, shape: Shape) -> Ints:
    """Move row numbers from the group's width to the shape's: more live rows push the branches back."""
    strip, row = np.divmod(read, of.n_rows)
    return strip * shape.t + np.where(row < of.r, row, row + shape.r - of.r)


def view(flat: torch.Tensor, sheet: Sheet, fixed: bool = False) -> Forward:
    """Return the forward whose tensors are views of the flat array on the device.

    Lengths that are all alike are left out, which spares the plain path its masks. `fixed`: for a captured
    graph, whose later inputs may be uneven where the first ones are not, nothing is left out.
    """
    shape = sheet.shape
    part = {name: flat[start:stop].view(size) for name, start, stop, size in sections(shape)}
    even = not fixed and bool((sheet.key_len == shape.n_keys).all())
    full = not fixed and bool((sheet.own_len == shape.w).all())
    return Forward(
        ids=part["ids"],
        pos=part["pos"],
        n_live=shape.r,
        branch_len=shape.w if shape.g else 0,
        n_keys=shape.n_keys,
        key_len=None if even else part["key_len"],
        hidden=part["hidden"] if shape.g else None,
        own_len=part["own_len"] if shape.g and not full else None,
        read=part["read"],
        slots=part["slots"] if shape.has_slots else None,
        slots_in_order=not fixed and bool((sheet.slots == POSITIONS[: shape.s]).all()),
        shares_slots=sheet.shares_slots,
        keep=part["keep"] if shape.keeps else None,
    )
