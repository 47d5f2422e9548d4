"""Laying asks out: packed, exact and frozen layouts say the same where they must."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ripple
from ripple.canvas import Canvas, Window
from ripple.engine.plan import Reading, Strip, group, lay_out
from ripple.look import Ask

LENGTH, BLOCK = 12, 6


def canvas_of(engine: ripple.Engine, prompt: list[int], reveal: dict[int, int] | None = None) -> Canvas:
    canvas = Canvas(np.array(prompt, dtype=np.int64), LENGTH, BLOCK, engine.model.config.mask_id)
    for offset, token in (reveal or {}).items():
        canvas.ids[len(prompt) + offset] = token
    return canvas


def looks(engine: ripple.Engine, reading: Reading) -> list[torch.Tensor]:
    """Logits of every draft of one reading."""
    logits = engine.model.logits(engine.hidden_states([reading]))
    return [logits[draft.rows] for draft in reading.drafts]


def full(canvas: Canvas, ask: Ask, engine: ripple.Engine, packed: bool = True) -> Reading:
    lead = engine.model.config.logit_shift
    return lay_out(canvas, ask, np.arange(len(canvas.ids)), lead, packed, slot=None, keeps=None)


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, atol=2e-4, rtol=1e-4)


def test_base_rows_of_a_packed_forward_equal_a_plain_forward(engine: ripple.Engine) -> None:
    canvas = canvas_of(engine, [4, 5, 6], {1: 9})
    window = Window(3, 9)
    branches = (((3, 7),), ((5, 8),), ((6, 2), (7, 3)))
    plain = looks(engine, full(canvas, Ask(window), engine))
    packed = looks(engine, full(canvas, Ask(window, branches), engine))
    close(packed[0], plain[0])


def test_an_unedited_branch_equals_the_base(engine: ripple.Engine) -> None:
    """The anchor's copy is the anchor."""
    canvas = canvas_of(engine, [4, 5, 6], {1: 9})
    base, copy, _ = looks(engine, full(canvas, Ask(Window(3, 9), ((), ((4, 7),))), engine))
    close(copy, base)


def test_packed_equals_exact_when_the_block_is_the_whole_canvas(engine: ripple.Engine) -> None:
    lead = engine.model.config.logit_shift
    prompt = [5] * lead  # the shifted family needs one row before the block; it travels with each branch
    canvas = Canvas(np.array(prompt, dtype=np.int64), BLOCK, BLOCK, engine.model.config.mask_id)
    ask = Ask(Window(lead, lead + BLOCK), (((lead, 7),), ((lead + 3, 8),)))
    packed, exact = (looks(engine, full(canvas, ask, engine, packed=p)) for p in (True, False))
    for a, b in zip(packed, exact, strict=True):
        close(a, b)


def test_packed_differs_from_exact_when_the_context_could_react(engine: ripple.Engine) -> None:
    canvas = canvas_of(engine, [4, 5, 6])
    ask = Ask(Window(3, 9), (((3, 7),),))
    packed, exact = (looks(engine, full(canvas, ask, engine, packed=p)) for p in (True, False))
    assert (packed[1] - exact[1]).abs().max() > 1e-3


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_frozen_keys_of_an_unchanged_canvas_equal_a_plain_forward(engine: ripple.Engine, cache: str) -> None:
    settings = ripple.Settings(ripple.Confidence(), LENGTH, BLOCK, ripple.caches.cache(cache))
    session = engine.submit([4, 5, 6], settings)
    engine.tick()  # opens the block and leaves keys behind
    assert session.ask is not None and not session.opens
    session.canvas.ids[3:] = engine.model.config.mask_id  # undo the commit: the keys are those of this canvas
    frozen = looks(engine, session.lay_out(packed=True))
    plain = looks(engine, full(session.canvas, session.ask, engine))
    assert len(session.lay_out(packed=True).base.strip.pos) < len(session.canvas.ids)
    close(frozen[0], plain[0])
    session.cancel()
    engine.tick()


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_frozen_steps_recompute_only_their_live_rows(engine: ripple.Engine, cache: str) -> None:
    lead = engine.model.config.logit_shift
    settings = ripple.Settings(ripple.Default(), LENGTH, BLOCK, ripple.caches.cache(cache))
    session = engine.submit([4, 5, 6], settings)
    engine.tick()
    live = session.lay_out(packed=True).base.strip.pos
    expected = range(3 - lead, 9 if cache == "dual" else 15)
    assert live.tolist() == list(expected)
    session.cancel()
    engine.tick()


def test_in_dual_cache_packed_and_exact_branches_agree(engine: ripple.Engine) -> None:
    """All context is frozen, so nothing can react to the branch either way."""
    settings = ripple.Settings(ripple.Lopa(k=3), LENGTH, BLOCK, ripple.caches.cache("dual"))
    session = engine.submit([4, 5, 6], settings)
    while session.ask is None or not session.ask.branches or session.opens:
        engine.tick()
    packed, exact = (looks(engine, session.lay_out(packed=p)) for p in (True, False))
    assert len(packed) > 1
    for a, b in zip(packed, exact, strict=True):
        close(a, b)
    session.cancel()
    engine.tick()


def test_branch_rows_see_neither_the_base_block_nor_each_other(engine: ripple.Engine) -> None:
    canvas = canvas_of(engine, [4, 5, 6])
    window = Window(3, 9)
    alone = looks(engine, full(canvas, Ask(window, (((4, 7),),)), engine))
    in_company = looks(engine, full(canvas, Ask(window, (((4, 7),), ((4, 30),), ((8, 2),))), engine))
    close(alone[1], in_company[1])


def strip(n_rows: int, n_branches: int = 0, slot: int | None = None) -> Strip:
    made = Strip(np.zeros(n_rows, dtype=np.int64), np.arange(n_rows), n_rows, slot)
    canvas = Canvas(np.zeros(n_rows - 4, dtype=np.int64), 4, 4, 9)
    ask = Ask(Window(n_rows - 4, n_rows), ((),) * n_branches)
    made.branches = lay_out(canvas, ask, np.arange(n_rows), 0, True, None, None).base.strip.branches
    return made


def test_strips_of_unlike_length_are_not_padded_together() -> None:
    groups = group([strip(20) for _ in range(8)] + [strip(300) for _ in range(8)])
    assert sorted(len(of.strips) for of in groups) == [8, 8]


def test_few_strips_share_one_forward_whatever_their_shape() -> None:
    assert len(group([strip(20), strip(30, 2), strip(40)])) == 1


def test_frozen_and_full_strips_never_share_a_forward() -> None:
    assert len(group([strip(20), strip(20, slot=0)])) == 2
