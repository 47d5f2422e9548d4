"""A group of batch rows becomes the tensors of one forward: written once, copied to the device once.

All integers of a forward lie in one flat array; the `ForwardInputs` are views of it. So a forward costs one
copy, and a captured graph, whose inputs must stay where they are, is fed by overwriting one buffer.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from ripple.canvas import Ints
from ripple.engine.grouping import RowGroup
from ripple.models.base import ForwardInputs

POSITIONS = np.arange(1 << 17)  # slices of it are cheaper than ranges made anew


class Shape(NamedTuple):
    """Everything about a forward that its tensors' sizes depend on."""

    s: int  # batch rows
    r: int  # live positions of each
    g: int  # branches of each
    w: int  # positions of a branch
    n_keys: int
    n_read: int
    has_slots: bool
    stores: bool
    has_limits: bool = False
    is_thin: bool = False

    @property
    def t(self) -> int:
        """Positions of one batch row."""
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
        "ids": (s, shape.t), "pos": (s, shape.t), "hide": (s, g * shape.w, 2), "own_len": (s, g),
        "key_len": (s,), "slots": (s,), "store_slots": (s,), "read": (shape.n_read,),
        "limit": (s, shape.t if shape.has_limits else 0), "hidden": (s, shape.n_keys if shape.is_thin else 0),
    }  # fmt: skip
    parts, at = [], 0
    for name, size in sizes.items():
        n = math.prod(size)
        parts.append(Section(name, at, at + n, size))
        at += n
    return parts


def shape_of(group: RowGroup, n_read: int) -> Shape:
    """Return the shape that a group needs, without padding."""
    rows = group.members
    has_slots, stores = rows[0].slot is not None, rows[0].store_slot is not None
    n_keys = max(row.n_keys for row in rows)
    has_limits = rows[0].limits is not None
    size = (len(rows), group.r, group.g, group.w, n_keys, n_read)
    return Shape(*size, has_slots, stores, has_limits, group.is_thin)


class HostInputs:
    """One forward's integers on the host: a flat array, and its parts as views of it."""

    def __init__(self, shape: Shape, flat: Ints | None = None) -> None:
        """Lay the parts over `flat`, or over a new array."""
        parts = sections(shape)
        self.shape = shape
        self.flat: Ints = np.zeros(parts[-1].stop, dtype=np.int64) if flat is None else flat
        self.shares_slots = False
        views = [self.flat[start:stop].reshape(size) for _, start, stop, size in parts]
        self.ids, self.pos, self.hide, self.own_len, self.key_len = views[:5]
        self.slots, self.store_slots, self.read, self.limit, self.hidden = views[5:]

    @property
    def per_row(self) -> tuple[Ints, ...]:
        """The parts whose first dimension counts batch rows."""
        parts = (self.ids, self.pos, self.hide, self.own_len, self.key_len, self.slots, self.store_slots)
        return (*parts, self.limit, self.hidden)


def pack(group: RowGroup, read: Ints, inputs: HostInputs) -> HostInputs:
    """Write a group into inputs whose shape holds it, and return them.

    Padding repeats real positions, so it can never produce a NaN and writes nothing new to the key store.
    `read` counts positions of the group's own width, which padding may widen.
    """
    shape, ids, pos = inputs.shape, inputs.ids, inputs.pos
    r, w = shape.r, shape.w
    inputs.flat.fill(0)
    inputs.own_len.fill(w)
    for i, row in enumerate(group.members):
        have = len(row.pos)
        ids[i, :have], pos[i, :have] = row.ids, row.pos
        if have < r:
            ids[i, have:r], pos[i, have:r] = row.ids[-1], row.pos[-1]
        b = 0
        for some in row.branches:
            n, m = some.ids.shape
            _grid(ids[i], r, b, n, w)[:, :m] = some.ids
            _grid(pos[i], r, b, n, w)[:, :m] = some.pos
            hide = inputs.hide[i, b * w : (b + n) * w].reshape(n, w, 2)
            hide[:, :m, 0], hide[:, :m, 1] = some.hide
            inputs.own_len[i, b : b + n] = m
            if some.hides_own:
                inputs.hidden[i, some.pos] = 1
            if shape.has_limits:
                _grid(inputs.limit[i], r, b, n, w)[:, :m] = row.n_keys if some.limits is None else some.limits
            b += n
        if row.limits is not None:
            inputs.limit[i, :have], inputs.limit[i, have:r] = row.limits, row.limits[-1]
        inputs.key_len[i] = row.n_keys
        inputs.slots[i] = row.slot or 0
        inputs.store_slots[i] = row.store_slot or 0
    n = len(group.members)
    if n < shape.s:
        for part in inputs.per_row:
            part[n:] = part[0]
    inputs.read[: len(read)] = read if shape.t == group.width else _widened(read, group, shape)
    inputs.shares_slots = group.shares_slots
    return inputs


def _grid(row: Ints, r: int, first: int, n: int, w: int) -> Ints:
    """Return n branches of a batch row, from the first one on, as a view [n, w]."""
    at = r + first * w
    return row[at : at + n * w].reshape(n, w)


def _widened(read: Ints, group: RowGroup, shape: Shape) -> Ints:
    """Move indices from the group's width to the shape's: more live positions push the branches back."""
    row, at = np.divmod(read, group.width)
    return row * shape.t + np.where(at < group.r, at, at + shape.r - group.r)


def device_view(flat: torch.Tensor, inputs: HostInputs, fixed: bool = False) -> ForwardInputs:
    """Return the inputs whose tensors are views of the flat array on the device.

    Lengths that are all alike are left out, which spares the plain path its masks. `fixed`: for a captured
    graph, whose later inputs may be uneven where the first ones are not, nothing is left out.
    """
    shape = inputs.shape
    part = {name: flat[start:stop].view(size) for name, start, stop, size in sections(shape)}
    is_even = not fixed and bool((inputs.key_len == shape.n_keys).all())
    is_full = not fixed and bool((inputs.own_len == shape.w).all())
    return ForwardInputs(
        ids=part["ids"],
        pos=part["pos"],
        n_live=shape.r,
        branch_len=shape.w if shape.g else 0,
        n_keys=shape.n_keys,
        key_len=None if is_even else part["key_len"],
        hide=part["hide"] if shape.g else None,
        own_len=part["own_len"] if shape.g and not is_full else None,
        read=part["read"],
        slots=part["slots"] if shape.has_slots else None,
        slots_in_order=not fixed and bool((inputs.slots == POSITIONS[: shape.s]).all()),
        shares_slots=inputs.shares_slots,
        store_slots=part["store_slots"] if shape.stores else None,
        limit=part["limit"] if shape.has_limits else None,
        hidden=part["hidden"] if shape.is_thin else None,
    )
