"""Laying asks out: packed, exact and frozen layouts say the same where they must."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ripple
from ripple.canvas import Canvas, Window
from ripple.engine.grouping import group_rows
from ripple.engine.layout import AskLayout, BatchRow, build_layout
from ripple.look import Ask

LENGTH, BLOCK = 12, 6


def canvas_of(engine: ripple.Engine, prompt: list[int], reveal: dict[int, int] | None = None) -> Canvas:
    canvas = Canvas(np.array(prompt, dtype=np.int64), LENGTH, BLOCK, engine.model.config.mask_id)
    for offset, token in (reveal or {}).items():
        canvas._ids[len(prompt) + offset] = token
    return canvas


def looks(engine: ripple.Engine, layout: AskLayout) -> list[torch.Tensor]:
    """Logits of every span of one layout."""
    logits = engine.model.logits(engine.runner.hidden_states([layout]))
    return [logits[span.rows] for span in layout.spans]


def full(canvas: Canvas, ask: Ask, engine: ripple.Engine, lookahead: str = "packed") -> AskLayout:
    return build_layout(canvas, ask, np.arange(len(canvas.ids)), engine.model.config, lookahead)


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
    packed, exact = (looks(engine, full(canvas, ask, engine, p)) for p in ("packed", "batched"))
    for a, b in zip(packed, exact, strict=True):
        close(a, b)


def test_packed_differs_from_exact_when_the_context_could_react(engine: ripple.Engine) -> None:
    canvas = canvas_of(engine, [4, 5, 6])
    ask = Ask(Window(3, 9), (((3, 7),),))
    packed, exact = (looks(engine, full(canvas, ask, engine, p)) for p in ("packed", "batched"))
    assert (packed[1] - exact[1]).abs().max() > 1e-3


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_frozen_keys_of_an_unchanged_canvas_equal_a_plain_forward(engine: ripple.Engine, cache: str) -> None:
    settings = ripple.Options(ripple.Confidence(), LENGTH, BLOCK, ripple.caches.cache(cache))
    request = engine.submit([4, 5, 6], settings)
    engine.tick()  # opens the block and leaves keys behind
    assert request.ask is not None and not request.is_refresh
    request.canvas._ids[3:] = (
        engine.model.config.mask_id
    )  # undo the commit: the keys are those of this canvas
    frozen = looks(engine, request.build_layout("packed"))
    plain = looks(engine, full(request.canvas, request.ask, engine))
    assert len(request.build_layout("packed").base.row.pos) < len(request.canvas.ids)
    close(frozen[0], plain[0])
    request.cancel()
    engine.tick()


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_frozen_steps_recompute_only_their_live_rows(engine: ripple.Engine, cache: str) -> None:
    lead = engine.model.config.logit_shift
    settings = ripple.Options(ripple.Default(), LENGTH, BLOCK, ripple.caches.cache(cache))
    request = engine.submit([4, 5, 6], settings)
    engine.tick()
    live = request.build_layout("packed").base.row.pos
    expected = range(3 - lead, 9 if cache == "dual" else 15)
    assert live.tolist() == list(expected)
    request.cancel()
    engine.tick()


def test_in_dual_cache_packed_and_exact_branches_agree(engine: ripple.Engine) -> None:
    """All context is frozen, so nothing can react to the branch either way."""
    settings = ripple.Options(ripple.Lopa(k=3), LENGTH, BLOCK, ripple.caches.cache("dual"))
    request = engine.submit([4, 5, 6], settings)
    while request.ask is None or not request.ask.branches or request.is_refresh:
        engine.tick()
    packed, exact = (looks(engine, request.build_layout(p)) for p in ("packed", "batched"))
    assert len(packed) > 1
    for a, b in zip(packed, exact, strict=True):
        close(a, b)
    request.cancel()
    engine.tick()


def test_branch_rows_see_neither_the_base_block_nor_each_other(engine: ripple.Engine) -> None:
    canvas = canvas_of(engine, [4, 5, 6])
    window = Window(3, 9)
    alone = looks(engine, full(canvas, Ask(window, (((4, 7),),)), engine))
    in_company = looks(engine, full(canvas, Ask(window, (((4, 7),), ((4, 30),), ((8, 2),))), engine))
    close(alone[1], in_company[1])


def test_thin_branches_of_a_window_of_masks_are_packed_ones(engine: ripple.Engine) -> None:
    canvas = canvas_of(engine, [4, 5, 6], {8: 9})
    ask = Ask(Window(3, 9), (((4, 7),), ((5, 30), (8, 2))))
    packed, thin = (full(canvas, ask, engine, how) for how in ("packed", "thin"))
    assert thin.base.row.branches[0].pos.tolist() == packed.base.row.branches[0].pos.tolist()
    for a, b in zip(looks(engine, packed), looks(engine, thin), strict=True):
        close(a, b)


def test_a_thin_branch_is_a_cached_step_that_recomputes_the_masks_alone(engine: ripple.Engine) -> None:
    """Everything else is read from the keys of the base, as if they had been stored."""
    canvas = canvas_of(engine, [4, 5, 6], {0: 11, 1: 9, 3: 8, 9: 12})
    edits = (((5, 7),), ((7, 30), (8, 2)))
    layout = full(canvas, Ask(Window(3, 9), edits), engine, "thin")
    pos = layout.base.row.branches[0].pos
    assert len(pos) < 6, "fewer rows than the window has"
    thin = looks(engine, layout)
    close(thin[0], looks(engine, full(canvas, Ask(Window(3, 9)), engine))[0])

    engine = ripple.engine.engine.Engine(engine.model)  # with a store of its own
    engine.runner.resize_store(1, len(canvas.ids))
    config, everything = engine.model.config, np.arange(len(canvas.ids))
    stored = build_layout(canvas, Ask(Window(3, 9)), everything, config, "packed", store_slot=0)
    engine.runner.hidden_states([stored])
    for branch, edit in zip(thin[1:], edits, strict=True):
        ask = Ask(Window(3, 9), (edit,))
        step = build_layout(canvas, ask, pos, config, "batched", slot=0)
        close(looks(engine, step)[1], branch)


def row(engine: ripple.Engine, n_positions: int, n_branches: int = 0, slot: int | None = None) -> BatchRow:
    canvas = Canvas(np.zeros(n_positions - 4, dtype=np.int64), 4, 4, engine.model.config.mask_id)
    ask = Ask(Window(n_positions - 4, n_positions), ((),) * n_branches)
    layout = build_layout(canvas, ask, np.arange(n_positions), engine.model.config, "packed", slot)
    return layout.base.row


def test_rows_of_unlike_length_are_not_padded_together(engine: ripple.Engine) -> None:
    groups = group_rows([row(engine, 20) for _ in range(8)] + [row(engine, 300) for _ in range(8)])
    assert sorted(len(group.members) for group in groups) == [8, 8]


def test_few_rows_share_one_forward_whatever_their_shape(engine: ripple.Engine) -> None:
    assert len(group_rows([row(engine, 20), row(engine, 30, 2), row(engine, 40)])) == 1


def test_frozen_and_full_rows_never_share_a_forward(engine: ripple.Engine) -> None:
    assert len(group_rows([row(engine, 20), row(engine, 20, slot=0)])) == 2
