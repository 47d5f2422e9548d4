"""Which positions each cache recomputes."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np
import pytest

import ripple
from ripple.caches import CACHES, Cache, D2Cache, DkvCache, Progress, cache, certainty_density
from ripple.canvas import Canvas, Window

MASK = 99


def progress(lead: int = 0, prompt: int = 8, length: int = 12, window: tuple[int, int] = (8, 12)) -> Progress:
    """A request whose first forward has just left its keys: all masks, nothing committed."""
    now = Progress.of(Canvas(np.arange(prompt), length, 4, MASK), lead)
    now.kept[:] = now.canvas.ids
    now.window, now.step = Window(*window), 3
    return now


def live(policy: Cache, now: Progress) -> list[int]:
    return (policy.opening(now) if policy.opens(now) else policy.inside(now)).tolist()


@pytest.mark.parametrize("lead", [0, 1])
def test_live_positions_inside_a_block(lead: int) -> None:
    now = progress(lead)
    assert live(cache("none"), now) == list(range(20))
    assert live(cache("prefix"), now) == list(range(8 - lead, 20))
    assert live(cache("dual"), now) == list(range(8 - lead, 12))


@pytest.mark.parametrize("name", CACHES)
def test_the_first_forward_recomputes_everything(name: str) -> None:
    now = Progress.of(Canvas(np.arange(8), 12, 4, MASK), 0)
    now.window = Window(8, 12)
    assert live(cache(name), now) == list(range(20))


@pytest.mark.parametrize("name", CACHES)
@pytest.mark.parametrize("lead", [0, 1])
def test_masks_of_the_block_and_the_rows_that_predict_them_are_always_live(name: str, lead: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        now = progress(lead, prompt=5, length=40, window=(13, 21))
        shown = rng.random(45) < rng.random()
        shown[14] = False
        now.canvas.ids[5:][shown[5:]] = 7
        now.kept[:] = np.where(rng.random(45) < 0.5, now.canvas.ids, MASK)
        rows = live(cache(name), now)
        masked = set(now.canvas.masked(now.window))
        assert masked | {p - lead for p in masked} <= set(rows)
        assert rows == sorted(set(rows))


def test_a_kept_prompt_is_computed_once() -> None:
    kept, now = ripple.DualCache(keep_prompt=True), progress(lead=1)
    now.step = 0  # a later block opens
    assert live(kept, now) == list(range(7, 20))
    assert live(ripple.DualCache(), now) == list(range(20))


def test_dkv_freezes_a_token_one_forward_after_its_commit() -> None:
    now, policy = progress(), DkvCache(refresh=None)
    now.canvas.ids[9] = 5  # committed: the next forward sees it for the first time
    assert live(policy, now) == list(range(8, 20))
    now.kept[9] = 5  # and has left its keys
    assert live(policy, now) == [8, *range(10, 20)]
    now.canvas.ids[9] = MASK  # taken back
    assert live(policy, now) == list(range(8, 20))


def test_dkv_recomputes_everything_in_two_forwards_and_at_each_refresh() -> None:
    now, full = progress(), []
    for now.step in range(12):
        full.append(DkvCache(refresh=5).opens(now))
    assert [step for step, opens in enumerate(full) if opens] == [0, 1, 5, 10]


def test_dkv_keeps_the_row_before_a_mask_live_when_that_is_where_it_is_read() -> None:
    now = progress(lead=1)
    now.canvas.ids[9] = now.kept[9] = 5  # 8, 10 and 11 are read from 7, 9 and 10
    assert live(DkvCache(), now) == [7, *range(8, 20)]


def test_certainty_density_is_the_gaussian_share_of_known_positions() -> None:
    known = np.array([True, False, True, True, False, False])
    n, sigma = len(known), 1.5
    for i, found in enumerate(certainty_density(known, sigma)):
        weight = {j: math.exp(-((i - j) ** 2) / (2 * sigma**2)) for j in range(-60, 60)}
        share = sum(w for j, w in weight.items() if j < 0 or (j < n and known[j])) / sum(weight.values())
        assert found == pytest.approx(share, abs=1e-6)
    assert certainty_density(~known, sigma)[-1] > 0.8  # a known end is known beyond, too


def test_d2_takes_the_block_fresh_tokens_and_the_most_promising_masks() -> None:
    now = progress(prompt=8, length=24)
    policy = D2Cache(masks=6, rest=0, gap=0)
    assert live(policy, now) == [8, 9, 10, 11, 12, 13]  # dense to the left, nobody looked ahead yet
    now.confidence[12:14] = 0.01
    assert live(policy, now) == [8, 9, 10, 11, 14, 15]  # unsure masks wait
    now.canvas.ids[8:10] = 5
    assert live(policy, now) == list(range(8, 16))  # 8 and 9 are fresh; two blocks hold six masks
    now.kept[8:10] = 5
    assert live(policy, now) == list(range(10, 16))


def test_d2_closes_gaps_and_takes_the_nearest_of_the_rest() -> None:
    now = progress(prompt=8, length=24)
    now.canvas.ids[9:11] = now.kept[9:11] = 5
    assert live(D2Cache(masks=2, rest=0, gap=2), now) == [8, 11]
    assert live(D2Cache(masks=2, rest=0, gap=3), now) == [8, 9, 10, 11]
    assert live(D2Cache(masks=2, rest=0.1, gap=3), now) == [6, 7, 8, 9, 10, 11, 12]
    assert live(D2Cache(masks=1, rest=1), now) == list(range(32))


@pytest.mark.parametrize(
    "field", [{"masks": 0}, {"sigma": 0}, {"gap": -1}, {"rest": 1.5}, {"sigma": math.nan}]
)
def test_bad_budgets_get_one_clear_sentence(field: dict[str, float]) -> None:
    with pytest.raises(ripple.RippleError, match="Cache d2 needs masks >= 1"):
        cache("d2", **field)


def test_a_cache_describes_itself() -> None:
    assert [cache(name).describe() for name in CACHES] == list(CACHES)
    assert cache("dual", keep_prompt=True, refresh=4).describe() == "dual:refresh=4,keep_prompt=true"
    for policy in (cache("dual", keep_prompt=True), DkvCache(refresh=None), D2Cache(rest=0.25, masks=8)):
        assert cache(policy.describe()) == policy
    assert all(
        f.default is not dataclasses.MISSING for cls in CACHES.values() for f in dataclasses.fields(cls)
    )


def test_a_cache_is_a_name_or_an_object() -> None:
    assert cache("dual") == ripple.DualCache()
    own = ripple.PrefixCache(refresh=4)
    assert cache(own) is own
    assert cache("dual", refresh=3) == ripple.DualCache(refresh=3)
    with pytest.raises(ripple.RippleError, match="Did you mean 'prefix'"):
        cache("prefixes")
    with pytest.raises(ripple.RippleError, match="Did you mean 'keep_prompt'"):
        cache("dual", keep_promt=True)


def test_a_cache_can_be_written_with_its_fields() -> None:
    assert cache("dual:keep_prompt=true") == ripple.DualCache(keep_prompt=True)
    assert cache("d2:masks=64,rest=0") == D2Cache(masks=64, rest=0)
    assert cache("dkv:refresh=none") == DkvCache(refresh=None)
    assert cache("dual:keep-prompt=false", keep_prompt=True) == ripple.DualCache(keep_prompt=True)
    for text, sentence in (
        ("dual:keep_prompt=4", "Cache dual: keep_prompt must be bool, got 4"),
        ("d2:masks", "masks must be int, got ''"),
        ("dkv:refresh=true", "refresh must be int | None, got True"),
        ("prefix:keep_prompt=true", "Unknown field of cache 'prefix'"),
        ("dubal:refresh=2", "Did you mean 'dual'"),
    ):
        with pytest.raises(ripple.RippleError, match=re.escape(sentence)):
            cache(text)


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
