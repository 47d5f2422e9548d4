"""The small viewer of notebooks: static, whole, and safe to put on a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import ripple
from ripple.trace import Event
from ripple.view import CAUSES
from ripple.viewer.page import STATIC
from ripple.viewer.small import COLOURS, small_html
from tests.viewer.conftest import QUESTION


def _text(html: str) -> str:
    parts: list[str] = []
    parser = HTMLParser()
    parser.handle_data = parts.append  # type: ignore[method-assign]
    parser.feed(html)
    return "".join(parts)


def test_a_result_with_a_trace_tells_its_forwards(tiny: ripple.Engine) -> None:
    prompt = [{"role": "user", "content": QUESTION}]
    plain = tiny.generate(prompt, decoder="rps", length=48)
    traced = tiny.generate(prompt, decoder="rps", length=48, trace=True)
    html = traced._repr_html_()
    assert traced.text.splitlines()[0] in _text(html) and "<details>" in html
    assert html.count("<tr>") == traced.nfe + 1
    assert f"NFE {traced.nfe}" in html and "<script" not in html and not re.search(r"https?://", html)
    assert "<details>" not in plain._repr_html_()


def test_chosen_candidates_are_marked(traces: dict[str, list[Event]]) -> None:
    searches = [e.data for e in traces["rps"] if e.kind == "search"]
    html = small_html([], [], "", traces["rps"])
    assert html.count("<b ") == len(searches)
    assert all(f"at {s['pivot'] - len(traces['rps'][0].data['prompt'])}: " in html for s in searches)


def test_text_is_text() -> None:
    html = small_html(["<script>", None], ["pivot", None], "a < b", None)
    assert "<script>" not in html and "&lt;script&gt;" in html and "a &lt; b" in html and "▒" in html


def test_every_cause_has_a_colour_in_notebooks_and_on_pages() -> None:
    assert set(COLOURS) == set(CAUSES)
    style = (STATIC / "viewer.css").read_text()
    assert all(f'[data-cause="{cause}"]' in style and f"--{cause}:" in style for cause in CAUSES)
    told = (STATIC / "trace.js").read_text().split("CAUSES = {")[1].split("};")[0]
    assert set(re.findall(r"^  (\w+):", told, re.MULTILINE)) == set(CAUSES)
