"""Which positions each cache recomputes."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np
import pytest

import ripple
from ripple.caches import CACHES, Cache, CacheState, D2Cache, DkvCache, cache
from ripple.caches.d2 import certainty_density
from ripple.canvas import Canvas, Window

MASK = 99


def progress(
    lead: int = 0, prompt: int = 8, length: int = 12, window: tuple[int, int] = (8, 12)
) -> CacheState:
    """A request whose first forward has just left its keys: all masks, nothing committed."""
    now = CacheState.new(Canvas(np.arange(prompt), length, 4, MASK), lead)
    now.stored_token[:] = now.canvas.ids
    now.turn_to(Window(*window))
    now.step = now.forwards = 3
    now.last_window = now.window
    return now


def write(now: CacheState, pos: object, token: object) -> None:
    """Put tokens onto the canvas, masks included."""
    now.canvas._ids[pos] = token


def live(policy: Cache, now: CacheState) -> list[int]:
    return (policy.refresh_positions(now) if policy.is_refresh(now) else policy.step_positions(now)).tolist()


@pytest.mark.parametrize("lead", [0, 1])
def test_live_positions_inside_a_block(lead: int) -> None:
    now = progress(lead)
    assert live(cache("none"), now) == list(range(20))
    assert live(cache("prefix"), now) == list(range(8 - lead, 20))
    assert live(cache("dual"), now) == list(range(8 - lead, 12))


@pytest.mark.parametrize("name", CACHES)
def test_the_first_forward_recomputes_everything(name: str) -> None:
    now = CacheState.new(Canvas(np.arange(8), 12, 4, MASK), 0)
    now.window = Window(8, 12)
    assert live(cache(name), now) == list(range(20))


@pytest.mark.parametrize("name", [name for name, cls in CACHES.items() if not cls.needs_blocks])
@pytest.mark.parametrize("lead", [0, 1])
def test_masks_of_the_block_and_the_rows_that_predict_them_are_always_live(name: str, lead: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        now = progress(lead, prompt=5, length=40, window=(13, 21))
        shown = rng.random(45) < rng.random()
        shown[14] = False
        write(now, 5 + np.flatnonzero(shown[5:]), 7)
        now.stored_token[:] = np.where(rng.random(45) < 0.5, now.canvas.ids, MASK)
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
    write(now, np.s_[9], 5)  # committed: the next forward sees it for the first time
    assert live(policy, now) == list(range(8, 20))
    now.stored_token[9] = 5  # and has left its keys
    assert live(policy, now) == [8, *range(10, 20)]
    write(now, np.s_[9], MASK)  # taken back
    assert live(policy, now) == list(range(8, 20))


def test_dkv_recomputes_everything_in_two_forwards_and_at_each_refresh() -> None:
    now, full = progress(), []
    for now.step in range(12):
        full.append(DkvCache(refresh=5).is_refresh(now))
    assert [step for step, opens in enumerate(full) if opens] == [0, 1, 5, 10]


def test_dkv_keeps_the_row_before_a_mask_live_when_that_is_where_it_is_read() -> None:
    now = progress(lead=1)
    write(now, np.s_[9], 5)
    now.stored_token[9] = 5  # 8, 10 and 11 are read from 7, 9 and 10
    assert live(DkvCache(), now) == [7, *range(8, 20)]


def test_certainty_density_is_the_gaussian_share_of_known_positions() -> None:
    known = np.array([True, False, True, True, False, False])
    n, sigma = len(known), 1.5
    for i, density in enumerate(certainty_density(known, sigma)):
        weight = {j: math.exp(-((i - j) ** 2) / (2 * sigma**2)) for j in range(-60, 60)}
        share = sum(w for j, w in weight.items() if j < 0 or (j < n and known[j])) / sum(weight.values())
        assert density == pytest.approx(share, abs=1e-6)
    assert certainty_density(~known, sigma)[-1] > 0.8  # a known end is known beyond, too


def test_d2_takes_the_block_fresh_tokens_and_the_most_promising_masks() -> None:
    now = progress(prompt=8, length=24)
    policy = D2Cache(masks=6, rest=0, gap=0)
    assert live(policy, now) == [8, 9, 10, 11, 12, 13]  # dense to the left, nobody looked ahead yet
    now.confidence[12:14] = 0.01
    assert live(policy, now) == [8, 9, 10, 11, 14, 15]  # unsure masks wait
    write(now, np.s_[8:10], 5)
    assert live(policy, now) == list(range(8, 16))  # 8 and 9 are fresh; two blocks hold six masks
    now.stored_token[8:10] = 5
    assert live(policy, now) == list(range(10, 16))


def test_d2_closes_gaps_and_takes_the_nearest_of_the_rest() -> None:
    now = progress(prompt=8, length=24)
    write(now, np.s_[9:11], 5)
    now.stored_token[9:11] = 5
    assert live(D2Cache(masks=2, rest=0, gap=2), now) == [8, 11]
    assert live(D2Cache(masks=2, rest=0, gap=3), now) == [8, 9, 10, 11]
    assert live(D2Cache(masks=2, rest=0.1, gap=3), now) == [6, 7, 8, 9, 10, 11, 12]
    assert live(D2Cache(masks=1, rest=1), now) == list(range(32))


@pytest.mark.parametrize(
    "field", [{"masks": 0}, {"sigma": 0}, {"gap": -1}, {"rest": 1.5}, {"sigma": math.nan}]
)
def test_bad_budgets_get_one_clear_sentence(field: dict[str, float]) -> None:
    with pytest.raises(ripple.RippleError, match=f"cache d2: {next(iter(field))} must"):
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
        ("dual:keep_prompt=4", "cache dual: keep_prompt must be true or false, got '4'"),
        ("d2:masks", "A field is set as field=value, got 'masks'"),
        ("d2:masks=", "masks must be a whole number of at least 1, got ''"),
        ("dkv:refresh=true", "refresh must be a whole number of at least 1 or none, got 'true'"),
        ("prefix:keep_prompt=true", "Unknown field of cache prefix"),
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
    settings = ripple.Options(ripple.Default(), 12, 6, ripple.DualCache(refresh=refresh))
    request = engine.submit([1, 2], settings)
    n_seen = 1  # the first tick admits the request and opens the first block
    engine.tick()
    while request.finish is None:
        n_seen += request.is_refresh
        engine.tick()
    assert n_seen == n_full


# -- a window that slides ----------------------------------------------------------------------------------


def forward(now: CacheState, policy: Cache) -> list[int]:
    """One forward: which positions it recomputes; their keys are stored as a policy of every step does."""
    rows = live(policy, now)
    now.stored_token[rows] = now.canvas.ids[rows]
    now.step, now.forwards, now.last_window = now.step + 1, now.forwards + 1, now.window
    return rows


@pytest.mark.parametrize("lead", [0, 1])
def test_slide_keeps_the_window_and_what_it_has_just_left(lead: int) -> None:
    now = CacheState.new(Canvas(np.arange(8), 24, 4, MASK), lead)
    policy = cache("slide")
    now.turn_to(Window(8, 14))
    assert forward(now, policy) == list(range(32))
    assert forward(now, policy) == list(range(8 - lead, 14))
    write(now, [8, 9, 12], 7)
    now.turn_to(Window(10, 16))
    assert forward(now, policy) == list(range(8 - lead, 16)), "8 and 9 once more, in place"
    write(now, [10, 11], 7)
    now.turn_to(Window(13, 19))
    assert forward(now, policy) == list(range(10 - lead, 19)), "8 and 9 are frozen"
    assert now.stored_token[8:13].tolist() == [7] * 5


def test_slide_recomputes_a_token_far_from_the_window_once() -> None:
    now = CacheState.new(Canvas(np.arange(8), 24, 4, MASK), 0)
    policy = cache("slide")
    now.turn_to(Window(8, 12))
    forward(now, policy)
    write(now, 30, 7)
    assert forward(now, policy) == [*range(8, 12), 30]
    assert forward(now, policy) == list(range(8, 12))


def test_dual_opens_a_block_when_the_window_starts_in_another() -> None:
    now = CacheState.new(Canvas(np.arange(8), 24, 8, MASK), 0)
    policy = cache("dual")
    now.turn_to(Window(8, 18))
    assert forward(now, policy) == list(range(32))
    write(now, [8, 9, 10], 7)
    now.turn_to(Window(11, 21))
    assert forward(now, policy) == list(range(8, 21)), "the block's tokens stay live"
    write(now, range(11, 17), 7)
    now.turn_to(Window(17, 27))
    assert forward(now, policy) == list(range(32))
