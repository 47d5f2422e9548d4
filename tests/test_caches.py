"""Which positions each cache recomputes."""

from __future__ import annotations

import pytest

import ripple
from ripple.caches import CACHES, Cache, cache
from ripple.canvas import Window


@pytest.mark.parametrize("lead", [0, 1])
def test_live_positions(lead: int) -> None:
    live = {name: cls().live(20, Window(8, 12), lead) for name, cls in CACHES.items()}
    assert live == {"none": range(20), "prefix": range(8 - lead, 20), "dual": range(8 - lead, 12)}


def test_a_cache_is_a_name_or_an_object() -> None:
    assert cache("dual") == ripple.DualCache()
    own = ripple.PrefixCache(refresh=4)
    assert cache(own) is own
    with pytest.raises(ripple.RippleError, match="Did you mean 'prefix'"):
        cache("prefixes")


@pytest.mark.parametrize("cls", CACHES.values())
def test_a_refresh_happens_after_at_least_one_forward(cls: type[Cache]) -> None:
    with pytest.raises(ripple.RippleError, match="at least 1"):
        cls(refresh=0)


@pytest.mark.parametrize("refresh, n_full", [(None, 2), (1, 12), (3, 4)])
def test_the_refresh_interval_counts_forwards(
    engine: ripple.Engine, refresh: int | None, n_full: int
) -> None:
    settings = ripple.Settings(ripple.Default(), 12, 6, ripple.DualCache(refresh=refresh))
    session = engine.submit([1, 2], settings)
    n_seen = 1  # the first tick admits the request and opens the first block
    engine.tick()
    while session.finish is None:
        n_seen += session.opens
        engine.tick()
    assert n_seen == n_full
