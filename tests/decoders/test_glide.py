"""Glide: it is RPS with its parts off, every search commits, and names of tokens do not matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ripple
from ripple.canvas import Canvas
from ripple.decoders import RPS, Decoder, Glide
from ripple.decoders.rps import truncated_entropy
from ripple.look import Answer, Ask, Edits, Look, check_ask

MASK = 99
VOCABULARY = 7


@pytest.mark.parametrize("how", [{}, {"cache": "dual"}, {"lookahead": "batched"}, {"temperature": 0.7}])
@pytest.mark.parametrize("lam", [0.0, 0.1])
def test_without_its_parts_it_is_rps(engine: ripple.Engine, how: dict[str, Any], lam: float) -> None:
    rps = RPS(tau=0.5, tau_pivot=0.6, lam=lam)
    glide = Glide(cap=None, slide=False, hold=False, tau=0.5, tau_pivot=0.6, lam=lam)
    rng = np.random.default_rng(7)
    prompts = [rng.integers(0, 40, size=rng.integers(1, 12)).tolist() for _ in range(12)]
    shape: dict[str, Any] = {"length": 29, "block": 8, "seed": 3, "end_fill": False} | how
    for a, b in zip(
        engine.generate(prompts, decoder=rps, **shape),
        engine.generate(prompts, decoder=glide, **shape),
        strict=True,
    ):
        assert a.token_ids == b.token_ids
        assert (a.nfe_normal, a.nfe_lookahead, a.canvases) == (b.nfe_normal, b.nfe_lookahead, b.canvases)


# -- a made-up model ---------------------------------------------------------------------------------------


class World:
    """Distributions that depend on the whole canvas; `names` renames the tokens."""

    def __init__(self, seed: int, sharpness: float, names: list[int]) -> None:
        self.seed, self.sharpness = seed, sharpness
        self.names = np.array(names)

    def look(self, canvas: Canvas, ask: Ask, edits: Edits) -> Look:
        """What a forward says under a branch's edits."""
        ids = canvas.ids.copy()
        for pos, token in edits:
            ids[pos] = token
        known = [-1 if token == MASK else int(np.argsort(self.names)[token]) for token in ids[1:]]
        pos = np.array([i for i in canvas.masked(ask.window) if ids[i] == MASK])
        rows = [self.row(known, int(i)) for i in pos]
        p = np.array(rows).reshape(len(pos), VOCABULARY)
        order = np.argsort(-p, axis=1, kind="stable")
        top_p = np.take_along_axis(p, order, axis=1).astype(np.float32)
        entropy = truncated_entropy(top_p.astype(np.float64)).astype(np.float32)
        return Look(pos, order[:, 0], top_p[:, 0], entropy, order, top_p)

    def row(self, known: list[int], pos: int) -> np.ndarray:
        rng = np.random.default_rng([self.seed, pos, *(token + 1 for token in known)])
        weights = np.exp(self.sharpness * rng.standard_normal(VOCABULARY))
        p = np.empty(VOCABULARY)
        p[self.names] = weights / weights.sum()
        return p

    def answer(self, canvas: Canvas, ask: Ask) -> Answer:
        looks = [self.look(canvas, ask, edits) for edits in ((), *ask.branches)]
        probes = []
        for number, pos, token in ask.probes:
            row = np.flatnonzero(looks[number].pos == pos)[0]
            rank = np.flatnonzero(looks[number].top_token[row] == token)[0]
            probes.append(looks[number].top_p[row, rank])
        return Answer(looks[0], tuple(looks[1:]), np.array(probes, dtype=np.float32))


def play(decoder: Decoder, world: World, length: int) -> tuple[list[int], list[Ask]]:
    """Decode by hand; check each ask, and that it leads to a commit."""
    canvas = Canvas(np.array([0]), length, min(8, length), MASK, vocab_size=VOCABULARY)
    conversation, asks, n_canvases = decoder.decode(canvas), [], 0
    ask = next(conversation)
    while True:
        check_ask(ask, canvas, n_canvases)
        first = canvas.masked(ask.window)[0]
        assert not (canvas.ids[: ask.window.start] == MASK).any(), "the window never passes a masked position"
        assert first >= ask.window.start
        asks.append(ask)
        n_before, n_canvases, was_search = canvas.n_masked, len(ask.branches), bool(ask.branches)
        try:
            ask = conversation.send(world.answer(canvas, ask))
        except StopIteration:
            return canvas.response.tolist(), asks
        is_held = not was_search and bool(ask.branches)
        assert canvas.n_masked < n_before or is_held, "a forward commits, or a search follows that does"


DECODERS = st.builds(
    Glide,
    width=st.sampled_from([1, 3, 8, 40]),
    cap=st.sampled_from([None, 0.0, 1.0, 4.0]),
    tau=st.sampled_from([0.3, 0.6, 0.9]),
    tau_far=st.sampled_from([0.5, 0.98]),
    tau_pivot=st.sampled_from([0.0, 0.9]),
    k_max=st.sampled_from([2, 7]),
    lam=st.sampled_from([0.0, 0.1]),
    pivots=st.sampled_from([1, 2]),
    joint=st.sampled_from([1, 3]),
    slide=st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(DECODERS, st.integers(0, 10**6), st.sampled_from([0.5, 1.5, 4.0]), st.integers(1, 14))
def test_every_search_commits_and_the_window_passes_no_mask(
    decoder: Glide, seed: int, sharpness: float, length: int
) -> None:
    tokens, asks = play(decoder, World(seed, sharpness, list(range(VOCABULARY))), length)
    assert MASK not in tokens and len(asks) <= 2 * length
    if decoder.slide:
        assert all(ask.window.stop - ask.window.start <= decoder.width for ask in asks)


@settings(max_examples=100, deadline=None)
@given(DECODERS, st.integers(0, 10**6), st.permutations(range(VOCABULARY)))
def test_the_order_of_candidates_changes_nothing(decoder: Glide, seed: int, names: list[int]) -> None:
    tokens, asks = play(decoder, World(seed, 1.5, list(range(VOCABULARY))), 12)
    renamed, others = play(decoder, World(seed, 1.5, names), 12)
    assert [names[token] for token in tokens] == renamed
    assert [ask.window for ask in asks] == [ask.window for ask in others]


def test_two_pivots_try_every_first_token_alone_and_the_joint_pairs() -> None:
    decoder = Glide(pivots=2, joint=2, tau=1.0, tau_far=1.0, tau_pivot=0.0, r=0.001, cap=None)
    _, asks = play(decoder, World(3, 0.5, list(range(VOCABULARY))), 10)
    ask = next(ask for ask in asks if any(len(edits) == 2 for edits in ask.branches))
    alone = [edits for edits in ask.branches if len(edits) == 1]
    pairs = [edits for edits in ask.branches if len(edits) == 2]
    assert len(alone) == VOCABULARY and len(pairs) == 4
    assert {pair[0] for pair in pairs} == {edits[0] for edits in alone[:2]}
    assert [probe[0] for probe in ask.probes] == [0] * 7 + [1, 1, 2, 2], (
        "a second token is probed given the first"
    )


def test_a_trace_names_both_pivots(engine: ripple.Engine) -> None:
    result = engine.generate([1, 2], decoder="glide:pivots=2,tau_pivot=0,cap=none", length=24, trace=True)
    searches = [event.data for event in result.trace or [] if event.kind == "search"]
    both = next(data for data in searches if "pivot_2" in data)
    assert both["pivot"] != both["pivot_2"] and len(both["token_2"]) == len(both["token"])
