"""The page in a real browser: from disk, without a request, by mouse and by keyboard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ripple.trace import Event
from ripple.viewer.page import Run, write_page

Traces = dict[str, list[Event]]
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def files(traces: Traces, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Pages on disk: one run, a blamed one, a race, one that was cut off, and an old trace."""
    folder = tmp_path_factory.mktemp("pages")
    rps = traces["rps"]
    old = [
        Event(event.kind, event.t, {k: v for k, v in event.data.items() if k != "branches"})
        if event.kind == "forward"
        else event
        for event in rps
    ]
    runs = {name: [Run(events)] for name, events in traces.items()} | {
        "blamed": [Run(rps, blame=1)], "race": [Run(rps), Run(traces["wino"])], "cut": [Run(rps[:4])],
        "old": [Run(old)],
    }  # fmt: skip
    for name, of in runs.items():
        write_page(folder / f"{name}.html", of)
    return {name: (folder / f"{name}.html").as_uri() for name in runs}


def _shown(page: Any) -> str:
    """The tokens of the canvas that can be read, without signs."""
    cells = page.locator(".canvas .token").all_text_contents()
    return "".join(cells).replace("⏎", "").replace("∎", "")


def _where(page: Any) -> str:
    return str(page.locator(".where").text_content())


def test_a_file_makes_no_request_and_shows_the_end(
    open_page: Open, files: dict[str, str], traces: Traces
) -> None:
    page = open_page(files["rps"])
    assert page.requests == [files["rps"]]
    end = traces["rps"][-1].data
    assert _shown(page) == end["text"]
    n = end["nfe_normal"] + end["nfe_lookahead"]
    assert _where(page).startswith(f"forward {n} of {n} · ")
    assert page.locator(".counters dd b").first.text_content() == str(n)


def test_the_keyboard_moves_through_the_forwards(
    open_page: Open, files: dict[str, str], traces: Traces
) -> None:
    page = open_page(files["rps"])
    end = traces["rps"][-1].data
    n = end["nfe_normal"] + end["nfe_lookahead"]
    page.keyboard.press("Home")
    assert _where(page).startswith("forward 0 ") and _shown(page) == ""
    page.keyboard.press("ArrowRight")
    first = next(event for event in traces["rps"] if event.kind == "commit")
    assert page.locator(".canvas .token").count() >= len(first.data["pos"])
    page.keyboard.press("ArrowLeft")
    assert _where(page).startswith("forward 0 ")
    page.keyboard.press("p")
    assert page.locator(".choice h2").text_content().startswith("Pivot at position")
    page.keyboard.press("End")
    assert _where(page).startswith(f"forward {n} ")
    page.select_option("select", "16")
    page.locator(".timeline").focus()
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    page.locator(f".where :text-matches('^forward {n} of')").wait_for()
    slider = page.get_by_role("slider")
    assert slider.get_attribute("aria-valuenow") == str(n) and "masked" in slider.get_attribute(
        "aria-valuetext"
    )


def test_the_timeline_is_a_scrubber(open_page: Open, files: dict[str, str]) -> None:
    page = open_page(files["rps"])
    box = page.locator(".timeline").bounding_box()
    page.mouse.click(box["x"] + 5, box["y"] + 100)
    assert _where(page).startswith("forward 0 ")
    page.mouse.click(box["x"] + box["width"] - 5, box["y"] + 100)
    assert not _where(page).startswith("forward 0 ")


@pytest.mark.parametrize("decoder", ["rps", "lopa"])
def test_a_losing_branch_shows_its_text(
    open_page: Open, files: dict[str, str], traces: Traces, decoder: str
) -> None:
    events = traces[decoder]
    page = open_page(files[decoder])
    page.keyboard.press("Home")
    page.keyboard.press("p")
    at = next(i for i, event in enumerate(events) if event.kind in ("search", "branches"))
    told, forward, pieces = events[at].data, events[at - 1].data, events[-1].data["pieces"]
    loser = next(i for i in range(len(told["token"])) if i != told["chosen"])
    branch = forward["branches"][-len(told["token"]) :][loser]
    decided = _shown(page)
    row = page.locator(".candidates tbody tr").nth(loser + 1)
    row.hover()
    assert page.locator(".canvas .edit").text_content() == pieces[str(told["token"][loser])].replace(
        "\n", "⏎\n"
    )
    guesses = page.locator(".canvas .guess").all_text_contents()
    assert len(guesses) == len(branch["entropy"])
    base = dict(zip(forward["pos"], forward["token"], strict=True))
    branch_tokens = base | dict(zip(branch["pos"], branch["token"], strict=True))
    open_pos = [pos for pos in forward["pos"] if pos not in {edit[0] for edit in branch["edits"]}]
    wanted = [pieces[str(branch_tokens[pos])].replace("\n", "⏎\n") for pos in open_pos]
    assert ["∎" if one.startswith("<|") else one for one in wanted] == guesses
    assert page.locator(".strip-cell").count() == 3 * len(forward["pos"])
    page.mouse.move(5, 5)
    assert page.locator(".canvas .guess").count() == 0 and _shown(page) == decided
    row.get_by_role("button").focus()  # the same by keyboard
    assert page.locator(".canvas .guess").count() == len(guesses)


def test_a_pivot_leads_to_its_search(open_page: Open, files: dict[str, str], traces: Traces) -> None:
    page = open_page(files["rps"])
    search = next(e.data for e in traces["rps"] if e.kind == "search" and e.data["chosen"] is not None)
    page.locator(".canvas [data-pick]").first.click()
    rows = page.locator(".candidates tbody tr")
    assert rows.count() == len(search["token"]) + 1
    chosen = page.locator(".candidates .is-chosen")
    numbers = chosen.locator("td").all_text_contents()
    best = search["chosen"]
    assert numbers[0] == f"{search['p'][best]:.3f}" and numbers[1] == f"{search['p_anchor'][best]:.3f}"
    assert numbers[3] == f"{search['score'][best + 1]:.3f}".replace("-", "−")


def test_colours_say_cause_entropy_or_ripple(open_page: Open, files: dict[str, str], traces: Traces) -> None:
    page = open_page(files["rps"])
    causes = {e.data["cause"] for e in traces["rps"] if e.kind == "commit"}
    assert causes <= {text.split()[0] for text in page.locator(".legend .key").all_text_contents()}
    page.keyboard.press("p")
    page.get_by_role("button", name="entropy").click()
    heats = {
        cell.evaluate("node => getComputedStyle(node).backgroundColor")
        for cell in page.locator(".canvas .token").all()[:20]
    }
    assert len(heats) > 2
    page.get_by_role("button", name="ripple").click()
    assert page.locator(".canvas [data-change=surer]").count() > 0


def test_the_arrows_go_on_moving_through_the_forwards_after_a_click(
    open_page: Open, files: dict[str, str]
) -> None:
    page = open_page(files["rps"])
    page.get_by_role("button", name="ripple").click()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert _where(page).startswith("forward 1 ")


def test_every_lookahead_tells_its_branches_even_where_its_decoder_does_not(
    open_page: Open, files: dict[str, str], traces: Traces
) -> None:
    page = open_page(files["ete"])
    page.keyboard.press("Home")
    for event in traces["ete"]:
        if event.kind == "forward":
            page.keyboard.press("ArrowRight")
            n = len(event.data.get("branches", []))
            assert page.locator(".candidates tbody tr").count() == (n + 1 if n else 0)
            assert page.locator(".candidates .is-chosen").count() == (1 if n else 0)
    page = open_page(files["wino"])
    assert page.get_by_role("button", name="Next lookahead (P)").is_disabled()
    assert page.locator(".choice").is_hidden()


def test_a_blamed_commit_is_marked(open_page: Open, files: dict[str, str], traces: Traces) -> None:
    page = open_page(files["blamed"])
    first = next(e.data for e in traces["rps"] if e.kind == "commit")
    assert page.locator(".canvas .blamed").count() == len(first["pos"])
    assert "cost the answer" in page.locator(".legend").text_content()


def test_a_race_runs_on_one_clock(open_page: Open, files: dict[str, str], traces: Traces) -> None:
    page = open_page(files["race"])
    facts = page.locator(".lane-facts").all_text_contents()
    ends = [traces[name][-1].data for name in ("rps", "wino")]
    assert [int(fact.split()[0]) for fact in facts] == [e["nfe_normal"] + e["nfe_lookahead"] for e in ends]
    assert page.locator(".is-best").count() == 1
    page.keyboard.press("Home")
    assert all(fact.startswith("0 forwards") for fact in page.locator(".lane-facts").all_text_contents())
    page.get_by_role("tab", name="wino").click()
    assert "".join(page.locator(".canvas .token").all_text_contents()).startswith(
        ends[1]["text"].split("\n")[0]
    )
    page.keyboard.press("ArrowLeft")  # of the tabs
    assert page.get_by_role("tab", name="rps").get_attribute("aria-selected") == "true"


def test_traces_that_tell_less_are_shown_as_far_as_they_go(
    open_page: Open, files: dict[str, str], traces: Traces
) -> None:
    page = open_page(files["cut"])
    assert "cut off" in page.locator("#facts").text_content()
    page = open_page(files["old"])
    page.keyboard.press("p")
    rows = page.locator(".candidates tbody tr:not(.is-chosen)")
    rows.nth(1).hover()
    assert page.locator(".strip-cell").count() == page.locator(".canvas .guess").count() == 0
    assert "is not in this trace" in page.locator(".choice .detail").text_content()
    rows.first.hover()  # to stay masked is known
    assert page.locator(".canvas .guess").count() > 0
    assert page.locator(".pointed").text_content().startswith("What the model would say now")
    taken = sum(event.kind == "search" and event.data["chosen"] is not None for event in traces["rps"])
    assert page.locator(".mark.taken").count() == taken > 0


@pytest.mark.parametrize("name", ["rps", "race"])
def test_a_narrow_screen_scrolls_one_way_only(open_page: Open, files: dict[str, str], name: str) -> None:
    page = open_page(files[name], width=360)
    page.keyboard.press("p")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_dark_and_light_differ_and_can_be_chosen(open_page: Open, files: dict[str, str]) -> None:
    def paper(page: Any) -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light, dark = (open_page(files["rps"], color_scheme=scheme) for scheme in ("light", "dark"))
    assert paper(light) != paper(dark)
    light.locator("#theme").click()  # system -> light
    light.locator("#theme").click()  # -> dark
    assert paper(light) == paper(dark)
