"""Caches: which positions a forward recomputes while a block is being decoded.

The forward that opens a block recomputes everything, answers the first ask, and leaves its keys behind. Until
the next block (or a refresh) the positions outside `live` keep those keys. `none` recomputes everything
always, which makes it the reference that the others are tested against.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from ripple.canvas import Window
from ripple.errors import RippleError, unknown


@dataclass(frozen=True)
class Cache(ABC):
    """A policy. `refresh` = n recomputes everything at every n-th forward of a block; None = never."""

    name: ClassVar[str]
    refresh: int | None = None
    stock_first: bool = False  # compatibility: commit a block's first token from the opening forward alone,
    # whatever its confidence, as Fast-dLLM does for models with a logit shift

    def __post_init__(self) -> None:
        if self.refresh is not None and self.refresh < 1:
            raise RippleError(f"Cache refresh must be at least 1 forward, got {self.refresh}.")

    @abstractmethod
    def live(self, n_positions: int, window: Window, lead: int) -> range:
        """Return the positions recomputed inside a block; `lead` rows before the window are read with it."""


@dataclass(frozen=True)
class NoCache(Cache):
    """Recompute the whole canvas in every forward."""

    name = "none"

    def live(self, n_positions: int, window: Window, lead: int) -> range:
        """Return every position."""
        return range(n_positions)


@dataclass(frozen=True)
class PrefixCache(Cache):
    """Freeze what lies before the block; recompute the block and all masks after it (Fast-dLLM prefix)."""

    name = "prefix"

    def live(self, n_positions: int, window: Window, lead: int) -> range:
        """Return the block and everything after it."""
        return range(window.start - lead, n_positions)


@dataclass(frozen=True)
class DualCache(Cache):
    """Freeze everything but the block (Fast-dLLM dual)."""

    name = "dual"

    def live(self, n_positions: int, window: Window, lead: int) -> range:
        """Return the block alone."""
        return range(window.start - lead, window.stop)


CACHES: dict[str, type[Cache]] = {cls.name: cls for cls in (NoCache, PrefixCache, DualCache)}


def cache(name: str | Cache) -> Cache:
    """Return the cache policy of that name."""
    if isinstance(name, Cache):
        return name
    if name not in CACHES:
        raise unknown("cache", name, CACHES)
    return CACHES[name]()
