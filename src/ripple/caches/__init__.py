"""Caches by name: policies that say which positions a forward recomputes.

`none` answers "all of them" always, which makes it the reference that the others are tested against. Adding
one is a class and a row in `CACHES`, or an entry point `ripple.caches` in a package of your own.
"""

from __future__ import annotations

from typing import Any

from ripple.caches.base import NO_KEYS, Cache, CacheState, check_positions
from ripple.caches.block import DualCache, NoCache, PrefixCache
from ripple.caches.d2 import D2Cache
from ripple.caches.dkv import DkvCache
from ripple.caches.exact import ExactCache
from ripple.caches.slide import SlideCache
from ripple.errors import RippleError
from ripple.fields import merged, split_spec
from ripple.plugins import Plugins, find_class, load_plugins

__all__ = [
    "CACHES", "NO_KEYS", "Cache", "CacheState", "D2Cache", "DkvCache", "DualCache", "ExactCache", "NoCache",
    "PrefixCache", "SlideCache", "cache", "cache_plugins", "check_positions",
]  # fmt: skip

CACHES: dict[str, type[Cache]] = {
    cls.name: cls for cls in (NoCache, PrefixCache, DualCache, DkvCache, D2Cache, SlideCache, ExactCache)
}
GROUP = "ripple.caches"


def cache(spec: str | Cache, /, **fields: Any) -> Cache:
    """Return a cache policy with any fields changed.

    `spec` is a policy, a name such as `dual`, or a name with fields such as `d2:masks=64,rest=0`.
    """
    if isinstance(spec, str):
        name, given = split_spec(spec)
        start: Cache = find_class("cache", name, CACHES, GROUP, Cache)()
        fields = given | fields
    elif isinstance(spec, Cache):
        start = spec
    else:
        raise RippleError(f"cache must be a name such as 'dual' or a cache object, got {spec!r}.")
    return merged(f"cache {start.name}", start, fields)  # type: ignore[no-any-return]


def cache_plugins() -> Plugins:
    """Return the caches that other packages offer."""
    return load_plugins(GROUP, Cache, tuple(CACHES))
