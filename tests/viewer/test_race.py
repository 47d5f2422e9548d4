"""A race is as rich as one run alone, and says what its runs do not share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ripple
from ripple.trace import Event
from ripple.viewer.page import Run, write_page

Open = Callable[..., Any]


@pytest.fixture
def race(open_page: Open, traces: dict[str, list[Event]], tmp_path: Path) -> Any:
    write_page(tmp_path / "race.html", [Run(traces["wino"]), Run(traces["rps"])])
    return open_page((tmp_path / "race.html").as_uri())


def test_pointing_at_a_token_tells_its_story_and_whose_it_is(race: Any) -> None:
    told = race.locator(".race > .transport .pointed")
    race.locator(".lane").nth(1).locator(".token").nth(4).hover()
    assert told.text_content().startswith("rps: Position 4 · ")
    race.locator(".lane").nth(0).locator(".cell[tabindex='0']").focus()
    race.keyboard.press("ArrowRight")
    race.mouse.move(1, 1)
    assert told.text_content().startswith("wino: Position 1 · ")
    race.locator(".lane").nth(1).locator(".token").nth(2).click()
    race.mouse.move(1, 1)
    assert told.text_content().startswith("rps: Position 2 · ")


def test_all_lanes_are_coloured_alike_and_explained(race: Any) -> None:
    causes = {cell.get_attribute("data-cause") for cell in race.locator(".lane .token:not(.special)").all()}
    explained = {text.split()[0] for text in race.locator(".legend .key").all_text_contents()}
    assert {"standard", "pivot"} <= causes <= explained
    race.keyboard.press("Home")
    race.get_by_role("button", name="entropy").click()
    assert race.locator(".lane .masked.entropy").count() > 64
    race.get_by_label("guesses").check()
    assert all(lane.locator(".guess").count() > 0 for lane in race.locator(".lane").all())


def test_a_pivot_opens_its_run_at_its_forward(race: Any) -> None:
    pivot = race.locator(".lane [data-pick]").first
    nfe = pivot.get_attribute("data-pick")
    pivot.click()
    assert race.get_by_role("tab", name="rps").get_attribute("aria-selected") == "true"
    assert race.locator(".where").text_content().startswith(f"forward {nfe} of ")
    assert race.locator(".candidates").count() == 1
    race.keyboard.press("ArrowLeft")  # the timeline has the keyboard
    assert race.locator(".where").text_content().startswith(f"forward {int(nfe) - 1} of ")


def test_a_run_opens_at_the_moment_that_the_race_shows(race: Any) -> None:
    race.keyboard.press("Home")
    race.get_by_role("button", name="Open rps").click()
    assert race.locator(".where").text_content().startswith("forward 0 of ")


def test_what_runs_do_not_share_is_told_of_each(
    open_page: Open, tiny: ripple.Engine, traces: dict[str, list[Event]], tmp_path: Path
) -> None:
    how: dict[str, Any] = {"decoder": "rps", "length": 48, "cache": "dual", "trace": True}
    other = tiny.generate("Question: Solve x + 3 = 5.\nAnswer:\n", **how).trace or []
    write_page(tmp_path / "unlike.html", [Run(traces["rps"]), Run(other), Run(other)])
    page = open_page((tmp_path / "unlike.html").as_uri())
    head = page.locator("#facts").text_content()
    assert (
        head.startswith("rps (1) vs rps (2) vs rps (3) · seed 0")
        and "length" not in head
        and "cache" not in head
    )
    own = page.locator(".lane-own").all_text_contents()
    assert ["length 64 · cache none" in own[0], "length 48 · cache dual" in own[1]] == [True, True]
    prompts = page.locator(".lane .prompt-line:visible").all_text_contents()
    assert prompts[0].startswith("Question: Mia has") and prompts[1].startswith("Question: Solve x")
    facts = page.locator(".lane-facts").all_text_contents()
    assert not any("differs" in one or "same" in one for one in facts)  # answers to other questions


def test_what_runs_share_is_told_once(race: Any) -> None:
    assert "wino vs rps · length 64 · cache none · seed 0" in race.locator("#facts").text_content()
    assert race.locator(".prompt-line:visible").count() == 1
    assert race.locator(".lane-own").all_text_contents() == ["", ""]
    assert "differs from wino at position" in race.locator(".lane-facts").last.text_content()
