"""Single-forward rules on scripted looks: thresholds, ties, fallbacks and compatibility switches."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ripple
from ripple.canvas import Canvas
from ripple.decoders import DECODERS, PRESETS, SimpleRule
from ripple.look import Look


def look(p: list[float], entropy: list[float] | None = None, kl: list[float] | None = None) -> Look:
    n = len(p)
    p_array = np.array(p, dtype=np.float32)
    h = np.array(entropy if entropy is not None else [1 - x for x in p], dtype=np.float32)
    second = np.stack([p_array, (1 - p_array) / 2], axis=1)
    tokens = np.tile(np.array([5, 6]), (n, 1))
    kl_array = None if kl is None else np.array(kl, dtype=np.float32)
    return Look(np.arange(10, 10 + n), tokens[:, 0], p_array, h, tokens, second, kl_array)


def picked(decoder: SimpleRule, seen: Look) -> list[int]:
    return np.flatnonzero(decoder.pick(seen)[0]).tolist()


def test_default_takes_k_and_breaks_ties_to_the_left() -> None:
    assert picked(ripple.Default(), look([0.3, 0.7, 0.7])) == [1]
    assert picked(ripple.Default(k=2), look([0.7, 0.3, 0.7, 0.7])) == [0, 2]
    assert picked(ripple.Default(order="entropy"), look([0.9, 0.2], [2.0, 1.0])) == [1]


def test_confidence_is_inclusive_and_falls_back_to_the_best() -> None:
    assert picked(ripple.Confidence(tau=0.75), look([0.75, 0.74, 0.9])) == [0, 2]
    rows, cause = ripple.Confidence(tau=0.9).pick(look([0.2, 0.5, 0.5]))
    assert np.flatnonzero(rows).tolist() == [1] and cause == "fallback"


def test_factor_asks_more_of_each_further_token() -> None:
    # (n + 1)(1 - c) < 1: thresholds 0.5, 0.667, 0.75, 0.8
    assert picked(ripple.Factor(f=1.0), look([0.9, 0.7, 0.74, 0.95])) == [0, 3]
    assert picked(ripple.Factor(f=1.0), look([0.9, 0.79, 0.8, 0.95])) == [0, 2, 3]
    assert picked(ripple.Factor(f=1.0), look([0.1, 0.2])) == [1]


def test_the_stock_factor_scan_also_commits_the_rank_it_stops_at_when_that_is_the_last() -> None:
    seen = look([0.95, 0.9, 0.3])
    assert picked(ripple.Factor(), seen) == [0, 1]
    assert picked(ripple.Factor(match_fast_dllm_tail=True), seen) == [0, 1, 2]
    assert picked(ripple.Factor(match_fast_dllm_tail=True), look([0.95, 0.3, 0.2])) == [0]


def test_frechet_accepts_whatever_factor_accepts_at_the_same_slack() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        seen = look(rng.uniform(0.3, 1, size=8).tolist())
        assert set(picked(ripple.Factor(f=0.75), seen)) <= set(picked(ripple.Frechet(delta=0.25), seen))


def test_eb_spends_its_budget_in_order_of_the_proxy() -> None:
    seen = look([0.9, 0.8, 0.7], entropy=[0.05, 0.3, 0.04])
    assert picked(ripple.EB(gamma=0.051), seen) == [0, 1]  # 0.05 + 0.3 - 0.3 = 0.05
    assert picked(ripple.EB(gamma=0.09), seen) == [0, 1, 2]
    assert picked(ripple.EB(gamma=0.041, proxy="entropy"), seen) == [0, 2]
    assert picked(ripple.EB(gamma=0.0), look([0.5, 0.4], [0.3, 0.2])) == [0]


def klass_steps(decoder: ripple.Klass, steps: list[Look]) -> list[tuple[list[int], str]]:
    pick = decoder.picker(Canvas(np.arange(10), 8, 8, 99))
    return [(np.flatnonzero(rows).tolist(), cause) for rows, cause in (pick(seen, None) for seen in steps)]


def test_klass_waits_until_a_confident_prediction_stands_still() -> None:
    still, moving = [0.0, 0.0], [1.0, 0.0]
    steps = [look([0.99, 0.99], kl=kl) for kl in (still, still, moving, still, still)]
    chosen = klass_steps(ripple.Klass(tau=0.9, eps_kl=0.01, history=2), steps)
    assert [cause for _, cause in chosen] == ["fallback", "standard", "standard", "standard", "standard"]
    assert [rows for rows, _ in chosen] == [[0], [0, 1], [1], [1], [0, 1]]


def test_klass_needs_more_than_tau() -> None:
    steps = [look([0.5, 0.75], kl=[0, 0])] * 2
    assert klass_steps(ripple.Klass(tau=0.75), steps)[1] == ([1], "fallback")
    assert klass_steps(ripple.Klass(tau=0.74), steps)[1] == ([1], "standard")


def test_the_released_dream_rule_of_klass_is_a_named_switch() -> None:
    steps = [look([0.5, 0.75], kl=[0, 0])] * 2
    chosen = klass_steps(ripple.Klass(tau=0.75, match_klass_dream=True), steps)
    assert chosen == [([1], "standard"), ([1], "standard")]


rules = [cls() for cls in DECODERS.values() if issubclass(cls, SimpleRule)]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=32), st.sampled_from(rules))
def test_every_rule_always_commits_something_and_the_best_is_among_it(
    p: list[float], rule: SimpleRule
) -> None:
    rows, cause = rule.pick(look(p))
    assert rows.any() and cause in ("standard", "fallback")
    assert rows[int(np.argmax(np.array(p, dtype=np.float32)))]


BAD_FIELDS = [
    ("confidence", {"tau": 0.0}, r"tau must lie in \(0, 1\], got 0.0"),
    ("confidence", {"tau": 1.5}, "tau must lie"),
    ("confidence", {"tau": float("nan")}, "tau must lie"),
    ("confidence", {"tau": "high"}, r"tau must be a number in \(0, 1\], got 'high'"),
    ("confidence", {"tua": 0.9}, "Did you mean 'tau'"),
    ("default", {"k": 0}, "k must be a whole number of at least 1, got 0"),
    ("default", {"k": 1.5}, "k must be a whole number"),
    ("default", {"order": "right"}, "order must be one of confidence, entropy, left, got 'right'"),
    ("klass", {"eps_kl": -1}, "eps_kl must be at least 0"),
    ("klass", {"history": 0}, "history"),
    ("eb", {"gamma": -0.1}, "gamma"),
    ("eb", {"proxy": "luck"}, "proxy"),
    ("wino", {"tau2": 2}, "tau2"),
    ("lopa", {"k": 0}, "k must be"),
    ("rps", {"lam": -1}, "lam"),
    ("rps", {"lam": float("inf")}, "lam must be a finite number, got inf"),
    ("rps", {"k_max": 256}, r"k_max must be a whole number in \[1, 255\], got 256"),
    ("rps:lam=0.2,lam=0.3", {}, "lam is set twice"),
    ("rps:lam", {}, "A field is set as field=value, got 'lam'"),
    ("rps:lamm=1", {}, "Did you mean 'lam'"),
    ("rps", {"r": 0}, "r must lie"),
    ("rps", {"k_max": 0}, "k_max"),
    ("rps", {"pivot": "middle"}, "pivot must be one of"),
    ("rps", {"standard": "lopa"}, "single-forward decoder"),
    ("rps", {"standard": "frechette"}, "Did you mean 'frechet'"),
    ("rsp", {}, "Unknown decoder 'rsp'. Did you mean 'rps'"),
    ("rps/lada", {}, "Did you mean 'rps/llada'"),
]


@pytest.mark.parametrize("name, fields, sentence", BAD_FIELDS)
def test_bad_settings_get_one_clear_sentence(name: str, fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(ripple.RippleError, match=sentence):
        ripple.decoder(name, **fields)


def test_presets_are_named_after_their_decoder_and_can_be_changed() -> None:
    for name, preset in PRESETS.items():
        assert preset.name == name.split("/")[0]
    assert ripple.decoder("rps/dream") == ripple.RPS(tau_pivot=0.95)
    assert ripple.decoder("rps/dream", lam=0.3) == ripple.RPS(tau_pivot=0.95, lam=0.3)
    assert ripple.decoder("rps", standard={"name": "frechet", "delta": 0.1}) == ripple.RPS(
        standard=ripple.Frechet(delta=0.1)
    )


def test_a_decoder_describes_itself() -> None:
    nested = ripple.RPS(lam=0.2, standard=ripple.EB(gamma=0.5, proxy="margin"))
    assert nested.describe() == "rps:lam=0.2,standard=(eb:gamma=0.5,proxy=margin)"
    for decoder in (nested, ripple.RPS(standard=ripple.Frechet(0.5)), *(cls() for cls in DECODERS.values())):
        assert ripple.decoder(decoder.describe()) == decoder
    assert ripple.Confidence().settings() == {"tau": 0.9}
    assert all(
        f.default is not dataclasses.MISSING for cls in DECODERS.values() for f in dataclasses.fields(cls)
    )
