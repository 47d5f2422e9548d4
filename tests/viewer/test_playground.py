"""The playground in a real browser against a real server, which asks for a key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ripple.trace import read_trace
from tests.server.conftest import Server, serving

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

Open = Callable[..., Any]
KEY = "a-key-for-this-test"


@pytest.fixture(scope="module")
def server(browser: Any) -> Iterator[Server]:
    with serving("--length", "48", "--api-key", KEY) as one:
        yield one


@pytest.fixture
def play(open_page: Open, server: Server) -> Open:
    """Opens the playground as somebody who has told the browser the key."""

    def opened(**how: Any) -> Any:
        page = open_page(server.url, http_credentials={"username": "", "password": KEY}, **how)
        page.locator(".decoder").first.wait_for()
        return page

    return opened


def _run(page: Any) -> None:
    page.locator("#run").click()
    page.locator("#share:not([hidden])").wait_for()


def test_nothing_is_shown_without_the_key(server: Server) -> None:
    for path in ("/", "/static/playground.js", "/playground", "/playground/page"):
        assert httpx.get(server.url + path).status_code == 401
        assert httpx.get(server.url + path, auth=("", KEY)).status_code == 200


def test_a_run_fills_the_canvas_and_a_pivot_tells_its_search(play: Open, server: Server) -> None:
    page = play()
    assert page.locator("#prompt").input_value().startswith("Question: ")
    page.get_by_label("Decoder 1", exact=True).last.select_option("rps")
    _run(page)
    assert "rps: " in page.locator("#status").text_content()
    n = int(page.locator(".counters dd b").first.text_content())
    assert n == page.get_by_role("slider").evaluate("node => Number(node.getAttribute('aria-valuemax'))") > 1
    assert page.locator(".canvas .token").count() > 10
    page.locator(".canvas [data-pick]").first.click()
    assert page.locator(".candidates tbody tr").count() > 1
    assert all(url.startswith((server.url, "data:")) for url in page.requests)


def test_the_settings_of_a_decoder_and_options_are_sent(play: Open) -> None:
    page = play()
    page.get_by_label("Decoder 1", exact=True).last.select_option("default")
    page.get_by_text("Settings").click()
    page.get_by_label("k", exact=True).fill("4")
    page.get_by_label("length").fill("16")
    sent: list[Any] = []
    page.on("request", lambda request: sent.append(request.post_data_json) if request.post_data else None)
    _run(page)
    assert sent[0]["ripple"] == {"length": 16, "decoder": "default:k=4", "stream": "canvas"}
    assert page.locator(".canvas .cell").count() == 16
    assert page.locator("#status").text_content().startswith("default:k=4: ")


def test_what_the_server_refuses_is_said_in_its_words(play: Open) -> None:
    page = play()
    page.get_by_label("length").fill("0")
    page.locator("#run").click()
    page.locator("#error:not([hidden])").wait_for()
    assert "length" in page.get_by_role("alert").text_content()
    assert page.locator("#run").is_enabled() and page.locator("#stop").is_hidden()
    page.get_by_label("length").fill("8")
    page.locator("#run").click()
    page.locator("#share:not([hidden])").wait_for()
    assert page.locator("#error").is_hidden()


def test_a_run_stays_to_be_shared_when_the_next_one_cannot_begin(play: Open) -> None:
    page = play()
    page.get_by_label("length").fill("8")
    _run(page)
    n = page.locator(".canvas .cell").count()
    page.route("**/v1/completions", lambda route: route.abort())
    page.get_by_label("length").fill("16")
    page.locator("#run").click()
    page.locator("#error:not([hidden])").wait_for()
    assert page.get_by_role("alert").text_content() == "The server cannot be reached."
    assert page.locator(".canvas .cell").count() == n and page.locator("#share").is_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as a page").click()
    assert download.value.suggested_filename == "ripple-glide.html"
    page.locator(".timeline").focus()
    page.keyboard.press("Home")
    assert page.locator(".where").text_content().startswith("forward 0 ")


def test_a_server_that_dies_is_told_and_what_came_can_be_shared(open_page: Open, browser: Any) -> None:
    with serving("--length", "400", "--decoder", "default") as doomed:
        page = open_page(doomed.url)
        page.locator("#run").click()
        page.locator(".canvas .token").nth(2).wait_for()
        doomed.process.kill()
        page.locator("#share:not([hidden])").wait_for()
        assert page.get_by_role("alert").text_content() == "The connection to the server broke."
        assert page.locator(".canvas .token").count() >= 3
        doomed.process.wait(30)


def test_decoders_race_and_the_race_is_shared_as_a_file(play: Open, open_page: Open, tmp_path: Path) -> None:
    page = play(reduced_motion="reduce")
    page.get_by_role("button", name="Add a decoder to race").click()
    page.get_by_label("Decoder 2", exact=True).last.select_option("wino")
    page.get_by_label("length").fill("24")
    assert page.locator("#run").text_content() == "Race"
    _run(page)
    assert page.locator(".lane").count() == 2
    facts = page.locator(".lane-facts").all_text_contents()
    assert all("tokens per forward" in fact for fact in facts)

    with page.expect_download() as download:
        page.get_by_role("button", name="Save as a page").click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    assert path.name == "ripple-glide-vs-wino.html" and path.stat().st_size < 300_000
    shared = open_page(path.as_uri())
    assert shared.requests == [path.as_uri()]
    assert shared.locator(".lane-facts").all_text_contents() == facts
    assert shared.locator("#facts").text_content().startswith("glide vs wino · tiny-llada · length 24")

    saved: list[Any] = []
    page.on("download", lambda one: saved.append(one))
    with page.expect_event("download", predicate=lambda _: len(saved) == 2):
        page.get_by_role("button", name="Save the trace").click()
    for one, name in zip(saved, ("glide", "wino"), strict=True):
        one.save_as(tmp_path / "trace.jsonl")
        events = read_trace(tmp_path / "trace.jsonl")
        assert events[0].data["decoder"] == name and events[-1].kind == "end"


def test_a_lane_that_was_refused_says_so_and_offers_nothing_to_look_at(play: Open) -> None:
    page = play()
    page.get_by_role("button", name="Add a decoder to race").click()
    page.get_by_text("Settings").last.click()
    page.get_by_label("tau", exact=True).last.fill("7")
    page.get_by_label("length").fill("8")
    _run(page)
    done, refused = page.locator(".lane").all()
    assert "tau must lie in (0, 1]" in page.get_by_role("alert").text_content()
    assert refused.locator(".lane-facts").text_content() == "did not begin"
    assert refused.locator(":is(button, summary, .canvas):visible").count() == 0
    assert done.get_by_role("button", name="Open glide").is_visible()
    page.get_by_role("tab").last.click()
    assert page.get_by_text("This run has not begun.").is_visible()
    assert page.locator(".viewer :is(button, summary, .panel):visible").count() == 0


def test_a_chat_goes_on_by_itself(play: Open) -> None:
    page = play()
    page.check("[value=chat]")
    assert page.locator("#run").text_content() == "Send" and page.locator("#new-chat").is_hidden()
    page.get_by_label("length").fill("16")
    sent: list[Any] = []
    page.on("request", lambda request: sent.append(request.post_data_json) if request.post_data else None)
    box, turns = page.locator("#prompt"), page.locator("#turns li")
    box.fill("Mia has 2 jars with 10 marbles each. How many marbles are there?")
    box.press("Enter")  # as in any chat
    assert box.input_value() == "" and turns.count() == 2  # the question, and where its answer is written
    page.locator("#share:not([hidden])").wait_for()
    assert turns.last.text_content() == f"assistant: {page.locator('.text').text_content()}"
    box.fill("And with")
    box.press("Shift+Enter")
    assert box.input_value() == "And with\n"
    box.fill("And with 3 jars?")
    _run(page)
    assert [turn["role"] for turn in sent[1]["messages"]] == ["user", "assistant", "user"]
    assert sent[1]["messages"][1]["content"] and turns.count() == 4
    assert (
        "the last question only" in page.locator("#forgets:visible").text_content()
    )  # tiny-llada's template
    page.check("[value=prompt]")
    assert page.locator("#turns, #new-chat, #forgets").filter(visible=True).count() == 0
    page.check("[value=chat]")
    page.get_by_role("button", name="New chat").click()
    assert turns.count() == 0 and page.locator("#forgets").is_hidden()


def test_a_question_without_a_whole_answer_returns_to_its_box(play: Open) -> None:
    page = play()
    page.check("[value=chat]")
    page.get_by_label("length").fill("0")
    page.locator("#prompt").fill("How many?")
    page.locator("#run").click()
    page.locator("#error:not([hidden])").wait_for()
    assert page.locator("#prompt").input_value() == "How many?" and page.locator("#turns li").count() == 0


def test_a_page_that_finds_no_server_can_try_again(play: Open) -> None:
    page = play()
    page.route("**/playground", lambda route: route.abort())
    page.reload()
    page.get_by_role("button", name="Try again").wait_for()
    assert page.get_by_role("alert").text_content() == "The server cannot be reached."
    page.unroute("**/playground")
    page.locator("#prompt").fill("anything")
    page.get_by_role("button", name="Try again").click()
    page.locator(".decoder").wait_for()
    assert page.locator("#error").is_hidden() and page.locator("#run").text_content() in ("Run", "Send")


def test_a_run_can_be_stopped(play: Open) -> None:
    page = play()
    page.get_by_label("Decoder 1", exact=True).last.select_option("default")
    page.get_by_label("length").fill("900")
    page.locator("#run").click()
    page.locator(".canvas .token").first.wait_for()
    page.locator("#stop").click()
    page.locator("#share:not([hidden])").wait_for()
    assert page.locator("#status").text_content() == "Stopped."
    assert 0 < page.locator(".canvas .token").count() < 900


FOCUSED = "document.activeElement.id || document.activeElement.className"


def test_the_keyboard_goes_on_where_a_run_ends(play: Open) -> None:
    page = play()
    page.get_by_label("length").fill("16")
    page.locator("#prompt").focus()
    page.keyboard.press("Control+Enter")
    page.locator("#share:not([hidden])").wait_for()
    assert page.evaluate(FOCUSED) == "timeline"
    n = page.locator(".counters dd b").first.text_content()
    page.keyboard.press("ArrowLeft")
    assert page.locator(".where").text_content().startswith(f"forward {int(n) - 1} of {n}")
    _run(page)  # by its button, which keeps the focus until there is a view
    assert page.evaluate(FOCUSED) == "timeline"
    page.get_by_label("Decoder 1", exact=True).last.select_option("default")
    page.get_by_label("length").fill("900")
    page.locator("#run").click()
    page.locator("#stop").focus()
    page.locator(".canvas .fold", has_text="positions not read").wait_for()
    page.keyboard.press("Enter")
    page.locator("#share:not([hidden])").wait_for()
    assert page.evaluate(FOCUSED) == "timeline"
    page.get_by_label("length").fill("0")
    page.locator("#run").click()
    page.locator("#error:not([hidden])").wait_for()
    assert page.evaluate(FOCUSED) == "run"


def test_the_focus_of_a_reader_who_has_gone_on_is_left_alone(play: Open) -> None:
    page = play()
    page.get_by_label("length").fill("16")
    page.locator("#run").click()
    page.get_by_label("seed").focus()
    page.locator("#share:not([hidden])").wait_for()
    assert page.evaluate(FOCUSED) == "option-seed"


def test_after_an_answer_the_next_question_can_be_typed_and_the_arrows_still_move(play: Open) -> None:
    page = play()
    page.check("[value=chat]")
    page.get_by_label("length").fill("16")
    page.locator("#prompt").fill("How many?")
    _run(page)
    assert page.evaluate(FOCUSED) == "prompt"
    page.keyboard.press("ArrowLeft")  # an empty box has no use for it
    where = page.locator(".where").text_content()
    assert not where.startswith(f"forward {where.split()[3]} ")
    page.keyboard.type("p 1")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#prompt").input_value() == "p 1" and page.locator(".where").text_content() == where


def test_every_field_says_what_it_is_for(play: Open) -> None:
    page = play()
    page.get_by_text("Settings").click()
    page.get_by_text("More options").click()
    fields = page.locator(".field :is(input, select)").all()
    assert len(fields) > 12
    for field in fields:
        hint = str(page.locator(f"#{field.get_attribute('aria-describedby')}").text_content())
        field.focus()
        assert len(hint) > 5 and page.locator(".hint", has_text=hint).is_visible()
    assert page.locator("form [title]").count() == 0


def test_on_a_phone_the_prompt_is_whole_and_stop_stays_in_sight(play: Open) -> None:
    page = play(width=360, has_touch=True, is_mobile=True)
    assert page.locator("#prompt").evaluate("node => node.scrollHeight <= node.clientHeight")
    page.get_by_label("Decoder 1", exact=True).last.select_option("default")
    page.get_by_label("length").fill("900")
    page.locator("#run").click()
    page.locator(".canvas .token").nth(2).wait_for()
    box = page.locator("#stop").bounding_box()
    assert page.evaluate("scrollY") > 100 and 0 <= box["y"] < 100
    page.locator("#stop").tap()
    page.locator("#share:not([hidden])").wait_for()


NAMELESS = """() => [...document.querySelectorAll("button, input, select, textarea, a, summary, [tabindex]")]
  .filter((node) => node.checkVisibility())
  .filter((node) => {
    const labels = [...node.labels ?? []].map((one) => one.textContent).join("");
    return !(node.ariaLabel || node.textContent.trim() || labels.trim());
  }).map((node) => node.outerHTML)"""


def test_every_control_has_a_name_and_tab_follows_the_page(play: Open) -> None:
    page = play()
    seen = []
    for _ in range(16):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    order = [seen.index(name) for name in ("theme", "prompt", "words", "Settings", "option-length")]
    assert order == sorted(order)
    page.get_by_role("button", name="Add a decoder to race").click()
    for summary in page.locator(".decoder summary, .options summary").all():
        summary.click()
    page.get_by_label("length").fill("8")
    _run(page)
    page.get_by_role("tab", name="glide").click()
    assert page.evaluate(NAMELESS) == []
    assert page.locator("[tabindex]:not([tabindex='0']):not([tabindex='-1'])").count() == 0


CONTRAST = """(selector) => {
  const context = document.createElement("canvas").getContext("2d");
  const rgb = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const linear = (x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  const light = (colour) => rgb(colour).slice(0, 3).map((x) => linear(x / 255))
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (node) => {
    const style = getComputedStyle;
    let behind = node;
    while (rgb(style(behind).backgroundColor)[3] < 255) behind = behind.parentElement;
    const both = [style(node).color, style(behind).backgroundColor].map(light).sort((x, y) => y - x);
    return (both[0] + 0.05) / (both[1] + 0.05);
  };
  return Math.min(...[...document.querySelectorAll(selector)].map(contrast));
}"""  # the least of an element's text with what is behind it, as WCAG counts


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_dark_and_light_and_a_narrow_page_scrolls_one_way(
    play: Open, scheme: str
) -> None:
    page = play(width=360, color_scheme=scheme, reduced_motion="reduce")
    assert page.evaluate(CONTRAST, ".welcome p, .welcome a") >= 4.5
    page.get_by_label("length").fill("32")
    _run(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    for selector in (
        "body", "#facts", "#theme", "#run", "#prompt", ".about", ".counters small", ".where", ".pointed",
        ".segment input:checked + span", ".segment input:not(:checked) + span", "[aria-pressed=true]",
        "[aria-pressed=false]", ".choice .quiet, .chosen",
    ):  # fmt: skip
        assert page.evaluate(CONTRAST, selector) >= 4.5, selector
    page.get_by_label("guesses").check()
    page.locator(".timeline").focus()
    page.keyboard.press("Home")
    page.keyboard.press("p")
    for mode in ("entropy", "ripple"):
        page.get_by_role("button", name=mode).click()
        for selector in (".canvas .token:not(.special)", ".canvas .guess"):
            assert page.evaluate(CONTRAST, selector) >= 4.5, (mode, selector)
