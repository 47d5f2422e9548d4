"""Where frozen keys and values live between forwards: by layer, slot (one per request) and position.

Keys are stored rotated. Positions that are recomputed in a forward are laid over the frozen ones, so
what the store holds there does not matter to that forward. It matters to the next one where a cache keeps
the keys of every forward; then `write` has the last word on them, see `engine/plan.py`'s `group`.
"""

from __future__ import annotations

import torch

from ripple.models.records import ModelConfig

POSITION_STEP = 128


class KVStore:
    """Rotated keys and values of every request that uses a cache."""

    def __init__(self, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> None:
        shape = (config.n_layers, 0, config.n_kv_heads, 0, config.head_dim)
        self.k = torch.empty(shape, device=device, dtype=dtype)  # [layers, slots, kv heads, N, head_dim]
        self.v = torch.empty(shape, device=device, dtype=dtype)

    def reserve(self, n_slots: int, n_positions: int, most_slots: int) -> None:
        """Make room for at least this many slots and positions; what is stored stays.

        Positions come in steps, so that prompts of similar length do not move the store each time. Slots grow
        ahead of need, but never beyond `most_slots`.
        """
        layers, slots, heads, positions, dim = self.k.shape
        n_positions = -(-n_positions // POSITION_STEP) * POSITION_STEP
        if n_slots <= slots and n_positions <= positions:
            return
        n_slots = min(_grown(slots, n_slots), max(most_slots, n_slots))
        shape = (layers, n_slots, heads, _grown(positions, n_positions), dim)
        for name in ("k", "v"):
            old = getattr(self, name)
            new = torch.zeros(shape, device=old.device, dtype=old.dtype)
            new[:, :slots, :, :positions] = old
            setattr(self, name, new)
            del old
        if self.k.is_cuda:
            torch.cuda.empty_cache()  # the old ones are too small to be of use to the next

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
        """Return all keys and values [S, kv heads, n_keys, head_dim]: live rows at `pos` over frozen ones."""
        n_rows = len(slots)
        index = pos[:, None, :, None].expand(-1, k.shape[1], -1, k.shape[3])
        both = []
        for store, live in ((self.k[layer], k), (self.v[layer], v)):
            all_keys = store[:n_rows] if in_place else store[slots]
            all_keys = all_keys[:, :, :n_keys]
            all_keys.scatter_(2, index, live)
            both.append(all_keys)
        return both[0], both[1]


def _grown(have: int, need: int) -> int:
    return max(need, have) if need <= have else max(need, have + have // 2)
