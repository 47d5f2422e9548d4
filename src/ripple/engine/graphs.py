"""Forwards captured as CUDA graphs, so that a step costs the host one launch.

A graph is bound to a shape, so shapes are rounded up to a few sizes: rows to whole tiles, branches to the
usual numbers of candidates, canvases to powers of two. Whatever varies inside a size (positions, lengths,
slots, what hides what) is data that the kernels read. A shape is run plainly when it is first met, which
also compiles its kernels, and captured when it comes again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from ripple.canvas import Ints
from ripple.engine.assemble import Shape, Sheet, pack, shape_of, view
from ripple.engine.plan import Group
from ripple.models.kv import KVStore
from ripple.models.transformer import Transformer

Tensor = torch.Tensor
BRANCHES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16)
FEW_ROWS, FEW_ROW_STEP = 64, 16  # a block is 32 rows, or 33 with the row that predicts its first token
ROW_STEP = 64  # more rows are rounded up to whole half-tiles of the matrix products
KEY_STEP = 256  # keys only decide how attention is split, so they can be rounded coarsely
MOST_CANVASES = 64  # more of them keep the device busy without graphs
MANY_ROWS = 1024  # so much work hides its launches, and exact shapes waste none of it
MOST_GRAPHS = 96


@lru_cache(maxsize=4096)
def rounded(shape: Shape) -> Shape:
    """Return the size that a shape is run at."""
    g = next((size for size in BRANCHES if size >= shape.g), shape.g)
    s = shape.s if shape.s <= 2 else 1 << (shape.s - 1).bit_length()
    full = not shape.has_slots
    r = _up(shape.r, FEW_ROW_STEP if shape.r <= FEW_ROWS and not full else ROW_STEP)
    n_keys = _up(max(shape.n_keys, r if full else 0), KEY_STEP)
    n_read = max(_up(shape.n_read, 32), 32 * s * (1 + g))
    return Shape(s, r, g, shape.w, n_keys, n_read, shape.has_slots, shape.keeps)


def _up(n: int, step: int) -> int:
    return -(-n // step) * step


@dataclass(slots=True)
class Captured:
    """A graph, the page-locked sheet that its first kernel reads and the tensor that it fills."""

    graph: torch.cuda.CUDAGraph
    source: Sheet
    flat: Tensor  # where that kernel puts it
    hidden: Tensor


class Graphs:
    """Runs groups of strips on a GPU, by graph where a shape is known."""

    def __init__(self, model: Transformer, store: KVStore) -> None:
        self.model = model
        self.store = store
        self._met: set[Shape] = set()
        self._graphs: dict[Shape, Captured] = {}
        self._pool: Any = None  # where all graphs take their memory from
        self._store_at = 0
        self._in_flight: set[Shape] = set()  # their buffers may not have been read yet

    def hidden(self, of: Group, read: Ints) -> Tensor:
        """Return the hidden states [n_read, d] of a group; valid until the same shape runs again."""
        exact = shape_of(of, len(read))
        if of.shares_slots or exact.s > MOST_CANVASES or exact.s * exact.r >= MANY_ROWS:
            return self._plain(pack(of, read, Sheet(exact)), fixed=False)
        self._forget_moved_store()
        shape = rounded(exact)
        captured = self._graphs.get(shape)
        if captured is None:
            sheet = pack(of, read, Sheet(shape))
            if shape not in self._met or len(self._graphs) >= MOST_GRAPHS:
                self._met.add(shape)
                return self._plain(sheet)[: len(read)]
            captured = self._graphs[shape] = self._capture(sheet)
        if shape in self._in_flight:  # the same shape twice in one tick
            torch.cuda.current_stream(self.model.device).synchronize()
        self._in_flight.add(shape)
        pack(of, read, captured.source)
        captured.graph.replay()
        return captured.hidden[: len(read)]

    def settle(self) -> None:
        """Take note that the device has finished all that was asked of it."""
        self._in_flight.clear()

    def _plain(self, sheet: Sheet, fixed: bool = True) -> Tensor:
        there = torch.from_numpy(sheet.flat).to(self.model.device)
        return self.model.hidden(view(there, sheet, fixed), self.store)

    def _capture(self, sheet: Sheet) -> Captured:
        from ripple.models.kernels import fetch  # needs Triton, which only GPU machines have

        source = torch.from_numpy(sheet.flat).pin_memory()
        there = torch.empty_like(source, device=self.model.device)
        fetch(source, there)  # compiled before anything is captured
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            fetch(source, there)
            hidden = self.model.hidden(view(there, sheet, fixed=True), self.store)
        self._pool = self._pool or graph.pool()
        return Captured(graph, Sheet(sheet.shape, source.numpy()), there, hidden)

    def _forget_moved_store(self) -> None:
        """Drop all graphs when the key store has moved: they would write where it was."""
        if self.store.k.data_ptr() != self._store_at:
            self._store_at = self.store.k.data_ptr()
            self._graphs.clear()
            self._pool = None
