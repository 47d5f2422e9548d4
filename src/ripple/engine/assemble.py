"""A group of strips becomes the tensors of one forward: written once on the host, copied once to the device.

All integers of a forward lie in one flat array; the `Forward` is a set of views of it. So a forward costs
one copy, and a captured graph, whose inputs must stay where they are, is fed by overwriting one buffer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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


@dataclass(slots=True)
class Packed:
    """One forward's integers on the host."""

    flat: Ints
    shape: Shape
    shares_slots: bool

    def part(self, name: str) -> Ints:
        """Return one section of the flat array, flat."""
        start, stop = next((x.start, x.stop) for x in sections(self.shape) if x.name == name)
        return self.flat[start:stop]


def pack(of: Group, read: Ints, shape: Shape, into: Ints | None = None) -> Packed:
    """Write a group into the flat array of a shape that holds it: a new one, or `into`.

    Padding repeats real rows, so it can never produce a NaN and writes nothing new to the key store.
    `read` counts rows of the group's own width, which padding may widen.
    """
    parts = sections(shape)
    flat = np.zeros(parts[-1].stop, dtype=np.int64) if into is None else into
    flat.fill(0)
    part = {name: flat[start:stop].reshape(size) for name, start, stop, size in parts}
    ids, pos, r, w = part["ids"], part["pos"], shape.r, shape.w
    part["own_len"].fill(w)
    for i, strip in enumerate(of.strips):
        have = len(strip.pos)
        ids[i, :have], pos[i, :have] = strip.ids, strip.pos
        ids[i, have:r], pos[i, have:r] = strip.ids[-1], strip.pos[-1]
        for b, branch in enumerate(strip.branches):
            m, at = len(branch.ids), r + b * w
            ids[i, at : at + m] = branch.ids
            pos[i, at : at + m] = POSITIONS[branch.start : branch.start + m]
            hidden = part["hidden"][i, b * w : b * w + m]
            hidden[:, 0], hidden[:, 1] = branch.hidden
            part["own_len"][i, b] = m
        part["key_len"][i] = strip.n_keys
        part["slots"][i] = strip.slot or 0
        part["keep"][i] = strip.keeps or 0
    n = len(of.strips)
    if n < shape.s:
        for name in ("ids", "pos", "hidden", "own_len", "key_len", "slots", "keep"):
            part[name][n:] = part[name][0]
    part["read"][: len(read)] = read if shape.t == of.n_rows else _widened(read, of, shape)
    return Packed(flat, shape, of.shares_slots)


def _widened(read: Ints, of: Group, shape: Shape) -> Ints:
    """Move row numbers from the group's width to the shape's: more live rows push the branches back."""
    strip, row = np.divmod(read, of.n_rows)
    return strip * shape.t + np.where(row < of.r, row, row + shape.r - of.r)


def view(flat: torch.Tensor, packed: Packed, fixed: bool = False) -> Forward:
    """Return the forward whose tensors are views of the flat array on the device.

    Lengths that are all alike are left out, which spares the plain path its masks. `fixed`: for a captured
    graph, whose later inputs may be uneven where the first ones are not, nothing is left out.
    """
    shape = packed.shape
    part = {name: flat[start:stop].view(size) for name, start, stop, size in sections(shape)}
    even = not fixed and bool((packed.part("key_len") == shape.n_keys).all())
    full = not fixed and bool((packed.part("own_len") == shape.w).all())
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
        slots_in_order=not fixed and bool((packed.part("slots") == POSITIONS[: shape.s]).all()),
        shares_slots=packed.shares_slots,
        keep=part["keep"] if shape.keeps else None,
    )
