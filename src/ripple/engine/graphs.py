"""Forwards captured as CUDA graphs, so that a step costs the host one launch.

A graph is bound to a shape, so shapes are rounded up to a few sizes: positions to whole tiles, branches to
the usual numbers of candidates, batch rows to powers of two. Whatever varies inside a size (positions,
lengths, slots, hidden ranges) is data that the kernels read. A shape runs eagerly the first time, which
also compiles its kernels, and is captured the second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from ripple.canvas import Ints
from ripple.engine.grouping import RowGroup
from ripple.engine.host_inputs import HostInputs, Shape, device_view, pack, shape_of
from ripple.models.base import Model
from ripple.models.kv_store import KVStore

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
    is_full = not shape.has_slots
    r = _up(shape.r, FEW_ROW_STEP if shape.r <= FEW_ROWS and not is_full else ROW_STEP)
    n_keys = _up(max(shape.n_keys, r if is_full else 0), KEY_STEP)
    n_read = max(_up(shape.n_read, 32), 32 * s * (1 + g))
    return shape._replace(s=s, r=r, g=g, n_keys=n_keys, n_read=n_read)


def _up(n: int, step: int) -> int:
    return -(-n // step) * step


@dataclass(slots=True)
class Captured:
    """A graph, the page-locked inputs that its first kernel reads and the tensor that it fills."""

    graph: torch.cuda.CUDAGraph
    inputs: HostInputs
    flat: Tensor  # where that kernel puts them
    hidden: Tensor


class Graphs:
    """Runs groups of batch rows on a GPU, by graph where a shape has been captured."""

    def __init__(self, model: Model, store: KVStore) -> None:
        self.model = model
        self.store = store
        self._seen: set[Shape] = set()
        self._graphs: dict[Shape, Captured] = {}
        self._pool: Any = None  # where all graphs take their memory from
        self._store_version = store.version
        self._in_flight: set[Shape] = set()  # their buffers may not have been read yet

    def hidden(self, group: RowGroup, read: Ints) -> Tensor:
        """Return the hidden states [n_read, d] of a group; valid until the same shape runs again."""
        exact = shape_of(group, len(read))
        is_plain = group.shares_slots or group.is_thin
        if is_plain or exact.s > MOST_CANVASES or exact.s * exact.r >= MANY_ROWS:
            return self._eager(pack(group, read, HostInputs(exact)), fixed=False)
        self._forget_moved_store()
        shape = rounded(exact)
        captured = self._graphs.get(shape)
        if captured is None:
            inputs = pack(group, read, HostInputs(shape))
            if shape not in self._seen or len(self._graphs) >= MOST_GRAPHS:
                self._seen.add(shape)
                return self._eager(inputs)[: len(read)]
            captured = self._graphs[shape] = self._capture(inputs)
        if shape in self._in_flight:  # the same shape twice in one tick
            torch.cuda.current_stream(self.model.device).synchronize()
        self._in_flight.add(shape)
        pack(group, read, captured.inputs)
        captured.graph.replay()
        return captured.hidden[: len(read)]

    def release_inputs(self) -> None:
        """Take note that the device has finished all that was asked of it."""
        self._in_flight.clear()

    def _eager(self, inputs: HostInputs, fixed: bool = True) -> Tensor:
        flat = torch.from_numpy(inputs.flat).to(self.model.device)
        return self.model.hidden(device_view(flat, inputs, fixed), self.store)

    def _capture(self, inputs: HostInputs) -> Captured:
        from ripple.models.gpu.kernels import fetch  # needs Triton, which only GPU machines have

        source = torch.from_numpy(inputs.flat).pin_memory()
        flat = torch.empty_like(source, device=self.model.device)
        fetch(source, flat)  # compiled before anything is captured
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            fetch(source, flat)
            hidden = self.model.hidden(device_view(flat, inputs, fixed=True), self.store)
        self._pool = self._pool or graph.pool()
        return Captured(graph, HostInputs(inputs.shape, source.numpy()), flat, hidden)

    def _forget_moved_store(self) -> None:
        """Drop all graphs when the key store has moved: they hold its old address and strides."""
        if self.store.version != self._store_version:
            self._store_version = self.store.version
            self._graphs.clear()
            self._pool = None
