"""What a page tells reaches all: by keyboard, finger and screen reader, on a phone, in high contrast."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ripple.trace import Event
from ripple.viewer.page import Run, write_page

Traces = dict[str, list[Event]]
Open = Callable[..., Any]
PHONE: dict[str, Any] = {"width": 360, "has_touch": True, "is_mobile": True}
FOCUSED = "(name) => document.activeElement.getAttribute(name)"


@pytest.fixture(scope="module")
def files(traces: Traces, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    runs = {"rps": [Run(traces["rps"])], "race": [Run(traces["rps"]), Run(traces["wino"])]}
    for name, of in runs.items():
        write_page(folder / f"{name}.html", of)
    return {name: (folder / f"{name}.html").as_uri() for name in runs}


def _where(page: Any) -> str:
    return str(page.locator(".where").text_content())


def _told(page: Any) -> str:
    """What describes the element that has the focus."""
    return str(
        page.evaluate(
            "document.getElementById(document.activeElement.getAttribute('aria-describedby')).textContent"
        )
    )


def test_every_position_tells_its_story_by_keyboard(open_page: Open, files: dict[str, str]) -> None:
    page = open_page(files["rps"])
    assert page.locator(".canvas .cell[tabindex]").count() == 1  # one stop of Tab for all positions
    end = _where(page)
    page.locator(".canvas .cell[tabindex='0']").focus()
    for at in range(1, 6):
        page.keyboard.press("ArrowRight")
        assert page.evaluate(FOCUSED, "data-at") == str(at) and page.evaluate(FOCUSED, "role") == "button"
        assert (
            _told(page).startswith(f"Position {at} · ") and "· p " in _told(page) and "entropy" in _told(page)
        )
        assert f"position {at}" in page.evaluate(FOCUSED, "aria-label")
    page.keyboard.press("ArrowDown")
    below = int(page.evaluate(FOCUSED, "data-at"))
    page.keyboard.press("ArrowUp")
    assert below > 6 and page.evaluate(FOCUSED, "data-at") == "5"
    assert _where(page) == end and page.locator(".canvas .cell[tabindex]").count() == 1
    for _ in range(20):  # back to where the position is masked, without leaving it
        page.keyboard.press("Shift+ArrowLeft")
    assert _where(page).startswith("forward 0 ") and _told(page).startswith("Position 5 · masked")
    assert page.evaluate(FOCUSED, "aria-hidden") is None
    page.keyboard.press("Escape")
    assert page.evaluate(FOCUSED, "role") == "slider"
    page.keyboard.press("ArrowRight")
    assert _where(page).startswith("forward 1 ")


def test_a_pivot_leads_to_its_search_by_keyboard(open_page: Open, files: dict[str, str]) -> None:
    page = open_page(files["rps"])
    pivot = page.locator(".canvas [data-pick]").first
    at, nfe = int(pivot.get_attribute("data-at")), pivot.get_attribute("data-pick")
    page.locator(".canvas .cell[tabindex='0']").focus()
    page.keyboard.press("Home")
    for _ in range(at):
        page.keyboard.press("ArrowRight")
    assert "pivot" in page.evaluate(FOCUSED, "aria-label")
    page.keyboard.press("Enter")
    assert _where(page).startswith(f"forward {nfe} ") and page.locator(".candidates").count() == 1


def test_columns_say_what_they_mean_without_a_mouse(open_page: Open, files: dict[str, str]) -> None:
    page = open_page(files["rps"])
    page.keyboard.press("p")
    heads = page.locator(".candidates thead th[aria-describedby]")
    assert heads.all_text_contents() == ["p", "plausible", "rest", "score"]
    meanings = [page.locator(f"#{head.get_attribute('aria-describedby')}") for head in heads.all()]
    assert all(len(str(one.text_content())) > 20 and not one.is_visible() for one in meanings)
    page.get_by_text("What the columns say").click()
    assert all(one.is_visible() for one in meanings)
    assert page.locator(".candidates [title]").count() == 0


def test_nothing_is_announced_while_forwards_pass(open_page: Open, files: dict[str, str]) -> None:
    for name in ("rps", "race"):
        page = open_page(files[name])
        page.keyboard.press("p")
        assert page.locator("output, [role=log], [aria-live=polite], [aria-live=assertive]").count() == 0
        page.keyboard.press("Home")
        before = page.locator("[role=status]").all_text_contents()
        page.get_by_role("button", name="Play (space)").click()
        page.locator(".where").filter(has_not_text=re.compile("^(forward [01] .*|0 ms)$")).wait_for()
        assert page.locator("[role=status]").all_text_contents() == before
    page.get_by_role("tab", name="rps").click()
    page.keyboard.press("p")
    page.locator(".candidate").first.focus()  # but what somebody asks for is
    assert page.locator(".detail").get_attribute("aria-live") == "polite"


def test_the_place_is_kept_when_what_had_the_focus_goes(open_page: Open, files: dict[str, str]) -> None:
    page = open_page(files["rps"])
    page.keyboard.press("p")
    page.locator(".candidate").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(FOCUSED, "aria-label") == "Lookahead"


def test_a_finger_is_enough(open_page: Open, files: dict[str, str]) -> None:
    page = open_page(files["rps"], **PHONE)
    for pivot in page.locator(".canvas [data-pick]").all():
        box = pivot.bounding_box()
        assert box["width"] >= 24 and box["height"] >= 24
    assert page.locator(".timeline").evaluate("node => getComputedStyle(node).touchAction") == "pan-y"
    page.locator(".canvas .token").nth(3).tap()
    assert (
        page.locator(".pointed").text_content().startswith("Position 3 · ")
    )  # and stays when the finger has left
    page.get_by_role("button", name="Next lookahead (P)").tap()
    page.locator(".candidates tbody tr:not(.is-chosen)").nth(1).tap()
    assert page.locator(".canvas .guess").count() > 0


def test_on_a_phone_canvas_candidates_and_transport_are_seen_together(
    open_page: Open, files: dict[str, str]
) -> None:
    page = open_page(files["rps"], **PHONE)
    page.keyboard.press("p")
    page.locator(".candidates tbody tr").nth(2).evaluate("row => row.scrollIntoView({block: 'center'})")
    canvas, row, play = (
        page.locator(one).first.bounding_box()
        for one in (".canvas .token", ".candidates tbody tr >> nth=2", ".play")
    )
    assert 0 <= canvas["y"] < row["y"] < play["y"] < 900 - play["height"]
    race = open_page(files["race"], **PHONE)
    box = race.get_by_role("button", name="Play (space)").bounding_box()
    assert box["y"] + box["height"] <= 900  # without scrolling


LOOKS = """(node) => ["borderBottomStyle", "borderBottomWidth", "borderTopStyle", "borderTopWidth"]
  .map((name) => getComputedStyle(node)[name]).join(" ")"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_high_contrast_keeps_what_colours_say(open_page: Open, files: dict[str, str], scheme: str) -> None:
    page = open_page(files["rps"], forced_colors="active", color_scheme=scheme, reduced_motion="reduce")
    page.keyboard.press("Home")
    page.keyboard.press("p")
    swatches = [key for key in page.locator(".legend .key").all() if "end" not in str(key.text_content())]
    looks = [key.locator(".swatch").evaluate(LOOKS) for key in swatches]
    assert len(looks) >= 4 and len(set(looks)) == len(looks)  # causes, masked, not read: told apart by lines
    pressed, other = (
        page.locator(f".segments [aria-pressed={one}]").first.evaluate(
            "node => getComputedStyle(node).backgroundColor"
        )
        for one in ("true", "false")
    )
    assert pressed != other
    page.get_by_role("button", name="entropy").click()
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    colours = page.locator(".canvas .masked").evaluate_all(
        "all => all.map((node) => getComputedStyle(node).color)"
    )
    assert set(colours) <= {paper, "rgba(0, 0, 0, 0)"}, colours  # what will stand there cannot be read


def test_the_axes_say_what_they_count(open_page: Open, files: dict[str, str], traces: Traces) -> None:
    page = open_page(files["rps"])
    end = traces["rps"][-1].data
    labels = page.locator(".timeline .label").all_text_contents()
    assert f"{end['nfe_normal'] + end['nfe_lookahead']} forwards" in labels and "0" in labels
    assert any(one.endswith(" nats") for one in labels) and any(one.endswith(" tokens") for one in labels)
    assert page.locator(".dots").text_content() == "lookaheadwonnone"
    page.get_by_label("axis in ms").check()
    assert page.locator(".timeline .label").last.text_content().endswith("s")


def test_what_the_answer_did_without_is_folded(open_page: Open, traces: Traces, tmp_path: Path) -> None:
    for name, why in (("rps", "after the end"), ("cut", "not read")):
        events = traces["rps"] if name == "rps" else traces["rps"][:4]
        write_page(tmp_path / f"{name}.html", [Run(events)])
        page = open_page((tmp_path / f"{name}.html").as_uri())
        cells = page.locator(".canvas .cell")
        n = cells.filter(visible=True).count()
        fold = page.locator(".canvas .fold")
        assert fold.text_content().startswith(f"… {64 - n} positions {why}") and 0 < n < 56
        page.locator(".canvas .cell[tabindex='0']").focus()
        page.keyboard.press("End")
        assert page.evaluate(FOCUSED, "data-at") == str(n - 1)
        masked = page.locator(".counters div", has_text="masked").locator("b").text_content()
        assert (masked == "0") == (name == "rps")
        fold.click()
        assert cells.filter(visible=True).count() == 64 and fold.get_attribute("aria-expanded") == "true"
