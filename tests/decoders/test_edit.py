"""LLaDA2.1's rule on scripted looks: strict thresholds, edits beside reveals, and when a block is done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ripple
from ripple.canvas import Canvas
from ripple.decoders import PRESETS
from ripple.decoders.edit import Edit
from ripple.look import Answer, Ask, Look

MASK, PROMPT = 9, [1, 2]
Told = dict[int, tuple[int, float]]  # position -> the prediction there and its probability


def new_canvas(length: int = 3) -> Canvas:
    return Canvas(np.array(PROMPT), length, block=length, mask_id=MASK)


def look(told: Told, pos: np.ndarray) -> Look:
    token = np.array([told[i][0] for i in pos.tolist()], dtype=np.int64)
    p = np.array([told[i][1] for i in pos.tolist()], dtype=np.float32)
    return Look(pos, token, p, 1 - p, token[:, None], p[:, None])


def run(decoder: Edit, canvas: Canvas, script: list[Told]) -> list[list[int]]:
    """Answer every ask from the script; return the response before each forward."""
    seen, conversation = [], decoder.decode(canvas)
    ask: Any = next(conversation)
    for told in script:
        assert isinstance(ask, Ask) and ask.reread
        seen.append(canvas.response.tolist())
        base, known = (look(told, of(ask.window)) for of in (canvas.masked, canvas.revealed))
        try:
            ask = conversation.send(Answer(base, reread=known))
        except StopIteration:
            return seen
    raise AssertionError("the script has ended and the decoder has not")


def test_both_thresholds_are_strict_and_the_surest_mask_is_always_revealed() -> None:
    canvas = new_canvas()
    script: list[Told] = [
        {2: (3, 0.5), 3: (4, 0.6), 4: (5, 0.5)},  # nothing above 0.6: the best goes alone
        {2: (3, 0.7), 3: (6, 0.4), 4: (5, 0.9)},  # 0.4 is no more than 0.4: 4 stays
        {2: (3, 0.9), 3: (4, 0.2), 4: (5, 0.9)},
    ]
    seen = run(Edit(tau=0.6, tau_edit=0.4), canvas, script)
    assert seen == [[MASK] * 3, [MASK, 4, MASK], [3, 4, 5]]
    assert canvas.response.tolist() == [3, 4, 5]
    assert canvas.causes == ["standard", "fallback", "standard"]


def test_a_token_is_replaced_while_others_are_revealed_and_the_trace_says_so() -> None:
    canvas, events = new_canvas(), []
    canvas.observer = lambda kind, data: events.append((kind, data["pos"], data["cause"]))
    script: list[Told] = [
        {2: (3, 0.9), 3: (4, 0.1), 4: (5, 0.1)},
        {2: (7, 0.8), 3: (4, 0.9), 4: (5, 0.9)},
        {2: (8, 0.8), 3: (4, 0.9), 4: (5, 0.9)},  # full, but not at rest
        {2: (8, 0.8), 3: (4, 0.9), 4: (5, 0.9)},
    ]
    seen = run(Edit(tau=0.6, tau_edit=0.5), canvas, script)
    assert seen[1:] == [[3, MASK, MASK], [7, 4, 5], [8, 4, 5]]
    assert canvas.causes == ["edit", "standard", "standard"]
    edit = [("revoke", [2], "edit"), ("commit", [2], "edit")]
    assert events == [("commit", [2], "standard"), ("commit", [3, 4], "standard"), *edit, *edit]


def test_a_block_that_finds_no_rest_has_so_many_forwards_and_no_more() -> None:
    canvas = new_canvas(1)
    script: list[Told] = [{2: (token, 0.9)} for token in (3, 4, 5, 6)]
    assert run(Edit(tau=0.5, tau_edit=0.0, post_steps=3), canvas, script) == [[MASK], [3], [4], [5]]
    assert canvas.response.tolist() == [6]


def test_the_vendors_settings_go_by_their_names() -> None:
    named = {name: (one.tau, one.tau_edit) for name, one in PRESETS.items() if isinstance(one, Edit)}
    assert named == {
        "edit/llada2": (0.95, 0.9), "edit/llada2.1-quality": (0.7, 0.5), "edit/llada2.1-speed": (0.5, 0.0),
    }  # fmt: skip
    assert ripple.decoder("edit") == PRESETS["edit/llada2"]


@pytest.mark.parametrize("cache", ["none", "prefix", "dual", "dkv", "d2", "slide"])
def test_rows_that_are_reread_are_computed_whatever_the_cache(
    engines: dict[str, ripple.Engine], cache: str
) -> None:
    for engine in engines.values():
        request = engine.submit([5, 6, 7], decoder="edit:tau=0.3", length=12, block=6, cache=cache)
        n_seen = 0
        while request.finish is None:
            engine.tick()
            if request.ask is not None:
                layout, lead = request.work().layout, engine.model.config.logit_shift
                assert layout.reread is not None
                assert np.isin(layout.reread.pos - lead, layout.base.row.pos).all()
                n_seen += len(layout.reread.pos)
        assert n_seen > 12 and request.result().is_full
