"""Frames: what each response position holds after each forward."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
import rich.console
import rich.text

import ripple
from ripple.trace import Event
from ripple.view import (
    CAUSES,
    Cell,
    draw_cells,
    draw_frame,
    draw_legend,
    draw_summary,
    frames,
    summary,
    visible,
)

PIECES = {"7": "a", "8": " b\n", "9": ""}


def _trace(*rest: tuple[str, dict[str, Any]]) -> list[Event]:
    start = {"prompt": [1, 2], "length": 3, "decoder": "rps", "fields": {}, "v": 2}
    events = [("start", start), *rest]
    return [Event(kind, i / 10, data) for i, (kind, data) in enumerate(events)]


def _forward(
    nfe: int, kind: str = "normal", entropy: tuple[float, ...] = (1.0, 2.0)
) -> tuple[str, dict[str, Any]]:
    return "forward", {"nfe": nfe, "kind": kind, "window": [2, 5], "canvases": 1, "entropy": list(entropy)}


def _commit(pos: list[int], token: list[int], cause: str) -> tuple[str, dict[str, Any]]:
    return "commit", {"pos": pos, "token": token, "p": [0.5] * len(pos), "cause": cause}


END = ("end", {"pieces": PIECES, "finish": "length", "seconds": 1.0, "text": "a b"})


def test_one_frame_per_forward() -> None:
    states = frames(
        _trace(
            _forward(1),
            _commit([3], [8], "standard"),
            _forward(2, entropy=()),
            _commit([2], [7], "fallback"),
            ("revoke", {"pos": [3], "cause": "doubt"}),
            END,
        )
    )
    assert [(frame.nfe, frame.n_masked, frame.mean_entropy) for frame in states] == [
        (1, 2, 1.5),
        (2, 2, None),
    ]
    assert states[0].cells == (Cell(), Cell(8, " b\n", "standard", True), Cell())
    assert states[1].cells == (Cell(7, "a", "fallback", True), Cell(cause="revoked", fresh=True), Cell())
    assert states[1].window == (0, 3) and states[1].t == 0.5


def test_fresh_lasts_one_frame() -> None:
    states = frames(
        _trace(_forward(1), _commit([2], [7], "standard"), _forward(2), _commit([3], [9], "forced"))
    )
    assert states[0].cells[0].fresh and not states[1].cells[0].fresh
    assert states[1].cells[1] == Cell(9, "<9>", "forced", True)  # no end event, so no pieces


def test_token_without_text_is_shown_by_its_id() -> None:
    states = frames(_trace(_forward(1), _commit([2], [9], "standard"), END))
    assert states[0].cells[0].piece == "<9>"


def test_search_puts_mask_first_and_stays_until_the_next() -> None:
    search = {
        "pivot": 3, "entropy_before": 1.0, "token": [7, 8], "p": [0.6, 0.3], "p_anchor": [0.5, 0.4],
        "p_anchor_max": 0.55, "mean_entropy": [1.0, 0.2, 0.8], "score": [-1.1, -0.3, -0.9], "chosen": 0,
    }  # fmt: skip
    states = frames(_trace(_forward(1), _forward(2, "lookahead"), ("search", search), _forward(3), END))
    assert states[0].choice is None and states[2].choice == states[1].choice
    choice = states[1].choice
    assert choice is not None and (choice.kind, choice.nfe, choice.pos) == ("search", 2, 1)
    mask, first, second = choice.candidates
    assert (mask.piece, mask.p, mask.p_anchor, mask.score) == ("[MASK]", None, 0.55, -1.1)
    assert (first.piece, first.p, first.is_chosen, second.is_chosen) == ("a", 0.6, True, False)
    stays = frames(_trace(_forward(1), ("search", search | {"chosen": None}), END))[0].choice
    assert stays is not None and [one.is_chosen for one in stays.candidates] == [True, False, False]


def test_branches() -> None:
    data = {"pos": [2, 4], "token": [7, 8], "score": [-1.0, -0.5], "score_base": -2.0, "chosen": 1}
    choice = frames(_trace(_forward(1), ("branches", data), END))[0].choice
    assert choice is not None and choice.kind == "branches"
    assert [(o.piece, o.score, o.is_chosen) for o in choice.candidates] == [
        ("no branch", -2.0, False), ("0: a", -1.0, False), ("2:  b\n", -0.5, True),
    ]  # fmt: skip


def test_summary_counts_commits_by_cause() -> None:
    totals = summary(
        _trace(
            _forward(1), _commit([2, 3], [7, 8], "standard"), _forward(2, "lookahead"),
            _commit([4], [7], "pivot"), ("revoke", {"pos": [2], "cause": "doubt"}), END,
        )
    )  # fmt: skip
    assert totals["commits"] == {"standard": 2, "pivot": 1} and totals["mean_p"]["standard"] == 0.5
    assert (totals["nfe_normal"], totals["nfe_lookahead"], totals["revoked"]) == (1, 1, 1)


def test_every_cause_has_a_colour_and_the_legend_names_those_that_occur() -> None:
    causes = ("standard", "fallback", "pivot", "branch", "forced", "next_token", "edit", "end")
    assert set(CAUSES) == {*causes, "revoked"}
    events = _trace(_forward(1), _commit([2], [7], "end"), _commit([3], [8], "pivot"), END)
    legend = draw_legend(*frames(events)).plain
    assert "■ end" in legend and "■ pivot" in legend and "■ branch" not in legend


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    events = _trace(_forward(1), _commit([2], [7], "[/b]"), END)
    events[0].data["decoder"] = "[/i]\x1b"
    out = rich.console.Console(file=StringIO(), width=60)
    out.print(draw_frame(frames(events)[0]), draw_summary(summary(events)))
    drawn = out.file.getvalue()
    assert "[/b]" in drawn and "[/i]␛: 1 forwards" in drawn


def test_visible_text_obeys_nothing() -> None:
    assert visible("a\nb\t\x1b[31m\x07\u200b") == "a⏎b⇥␛[31m··"
    assert visible("a\nb\x1b", keep="\n") == "a\nb␛"
    assert visible("日本 é λ") == "日本 é λ"


def test_drawing_fits_the_width() -> None:
    wide = {"7": "日本語" * 20, "8": "[red]x\x1b[2J"}
    events = _trace(_forward(1), _commit([2, 3], [7, 8], "standard"), ("end", {"pieces": wide}))
    out = rich.console.Console(file=StringIO(), width=30)
    out.print(draw_frame(frames(events)[0]))
    out.print(draw_summary(summary(events)))
    drawn = out.file.getvalue()
    assert all(rich.text.Text(line).cell_len <= 30 for line in drawn.splitlines())
    assert "[red]x␛[2J" in draw_cells(frames(events)[0]).plain and "\x1b" not in drawn


@pytest.mark.parametrize("name", ["rps", "lopa", "wino", "ete"])
def test_last_frame_is_the_result(engines: dict[str, ripple.Engine], name: str) -> None:
    for engine in engines.values():
        result = engine.generate([1, 2, 3], decoder=name, length=20, block=8, trace=True)
        states = frames(result.trace)
        assert [frame.nfe for frame in states] == list(range(1, result.nfe + 1))
        assert [cell.token for cell in states[-1].cells] == result.token_ids
