"""Where frozen keys and values stay between forwards: by layer, slot (one per request) and position.

Keys are stored rotated. Positions that are recomputed in a forward replace the stored ones in what attention
reads, so stale keys there do no harm. Where a cache stores the keys of every forward, several canvases of one
tick may share a slot; the one that stores must then run last, see `group_rows` in engine/grouping.py.
"""

from __future__ import annotations

import torch

from ripple.models.base import ModelConfig


class KVStore:
    """Rotated keys and values of every request that uses a cache."""

    def __init__(self, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> None:
        shape = (config.n_layers, 0, config.n_kv_heads, 0, config.head_dim)
        self.k = torch.empty(shape, device=device, dtype=dtype)  # [layers, slots, kv heads, N, head_dim]
        self.v = torch.empty(shape, device=device, dtype=dtype)
        self.version = 0  # of the tensors: whoever has noted their addresses and shapes looks here

    def resize(self, n_slots: int, n_positions: int) -> None:
        """Give the store this many slots and positions; what lies in both the old and the new one stays.

        Where there is no memory for both, what stays goes by way of the host. On failure nothing has changed.
        """
        layers, slots, heads, positions, dim = before = self.k.shape
        after = torch.Size((layers, n_slots, heads, n_positions, dim))
        if after == before:
            return
        kept = (slice(None), slice(min(slots, n_slots)), slice(None), slice(min(positions, n_positions)))
        parts = [self.k[kept], self.v[kept]]
        try:
            new = self._zeros(after)
        except torch.OutOfMemoryError:
            parts = [part.cpu() for part in parts]
            self._replace(self._zeros(torch.Size((layers, 0, heads, 0, dim))))
            _give_back(self.k)
            try:
                new = self._zeros(after)
            except torch.OutOfMemoryError:
                self._fill(self._zeros(before), kept, parts)
                parts.clear()  # the error's frame would keep them
                raise
        self._fill(new, kept, parts)
        parts.clear()
        _give_back(self.k)  # the old ones are too small to be of use to the next

    def _zeros(self, shape: torch.Size) -> list[torch.Tensor]:
        return [torch.zeros(shape, device=self.k.device, dtype=self.k.dtype) for _ in "kv"]

    def _fill(self, new: list[torch.Tensor], kept: tuple[slice, ...], parts: list[torch.Tensor]) -> None:
        for tensor, part in zip(new, parts, strict=True):
            tensor[kept].copy_(part)
        self._replace(new)

    def _replace(self, new: list[torch.Tensor]) -> None:
        self.k, self.v = new
        self.version += 1  # new memory may lie where the old was

    def write(
        self, layer: int, slots: torch.Tensor, pos: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> None:
        """Store keys and values [S, kv heads, n, head_dim] at the positions `pos` [S, n] of their slots."""
        where = (layer, slots[:, None], slice(None), pos)  # two index arrays apart: they come first, [S, n]
        self.k[where] = k.transpose(1, 2)
        self.v[where] = v.transpose(1, 2)

    def overlay(
        self, layer: int, slots: torch.Tensor, in_place: bool, pos: torch.Tensor,
        k: torch.Tensor, v: torch.Tensor, n_keys: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """Return all keys and values [S, kv heads, n_keys, head_dim]: stored, but live ones at `pos`."""
        n_rows = len(slots)
        index = pos[:, None, :, None].expand(-1, k.shape[1], -1, k.shape[3])
        both = []
        for store, live in ((self.k[layer], k), (self.v[layer], v)):
            all_keys = store[:n_rows] if in_place else store[slots]
            all_keys = all_keys[:, :, :n_keys]
            all_keys.scatter_(2, index, live)
            both.append(all_keys)
        return both[0], both[1]


def _give_back(tensor: torch.Tensor) -> None:
    """Return memory that is cached for a device, but not in use, to that device."""
    if tensor.is_cuda:
        torch.cuda.empty_cache()
