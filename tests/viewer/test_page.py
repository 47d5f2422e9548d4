"""A page is one small file that holds its runs and fetches nothing."""

from __future__ import annotations

import json
import math
import re

from ripple.trace import Event
from ripple.viewer.blame import guilty_commit
from ripple.viewer.page import STATIC, Run, page, script

Traces = dict[str, list[Event]]


def _runs(html: str) -> list[dict[str, object]]:
    found = re.search(r'<script type="application/json" id="runs">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    runs: list[dict[str, object]] = json.loads(found[1])
    return runs


def test_a_page_without_its_runs_is_small_and_names_no_other_place() -> None:
    frame = page()
    assert _runs(frame) == [] and len(frame.encode()) < 300_000
    allowed = {"http://www.w3.org/2000/svg"}  # the name of SVG, not a place
    assert set(re.findall(r"\bhttps?://[^\s\"'`)]+", frame)) <= allowed
    assert not re.search(r"\b(?:src|href)=|@import|\burl\(|\bfetch\(|\bimport\b|\bexport\b.*[{;]", frame)
    assert "default-src 'none'" in frame


def test_a_page_holds_the_events_of_its_runs(traces: Traces) -> None:
    runs = _runs(page([Run(traces["rps"], "one"), Run(traces["wino"], blame=3)]))
    assert [run["name"] for run in runs] == ["one", ""] and runs[1]["blame"] == 3
    assert [event["event"] for event in runs[0]["events"]] == [event.kind for event in traces["rps"]]  # type: ignore[attr-defined]


def test_no_text_of_a_run_ends_the_script_that_holds_it(traces: Traces) -> None:
    nasty = "</script><script>alert(1)</script><!--"
    start = Event("start", 0.0, traces["rps"][0].data | {"prompt_text": nasty})
    html = page([Run([start, *traces["rps"][1:]])])
    assert nasty not in html and _runs(html)[0]["events"][0]["prompt_text"] == nasty  # type: ignore[index]


def test_numbers_that_json_does_not_know_draw_nothing(traces: Traces) -> None:
    start = Event("start", 0.0, traces["rps"][0].data | {"note": [math.inf, math.nan, 0.5]})
    runs = _runs(page([Run([start, *traces["rps"][1:]])]))
    assert runs[0]["events"][0]["note"] == [None, None, 0.5]  # type: ignore[index]


def test_every_module_of_a_page_comes_once_and_after_what_it_needs() -> None:
    bundle = script("file.js")
    names = [path.name for path in STATIC.glob("*.js") if path.read_text().splitlines()[0] in bundle]
    assert {"dom.js", "trace.js", "canvas.js", "viewer.js", "race.js", "file.js"} <= set(names)
    for name in names:
        assert bundle.count((STATIC / name).read_text().splitlines()[0]) == 1
    assert bundle.index("class Recording") < bundle.index("class CanvasView") < bundle.index("class Viewer")


def test_a_case_of_blame_marks_its_commit(traces: Traces) -> None:
    events = traces["rps"]
    commits = [event.data for event in events if event.kind == "commit"]
    end = events[-1].data
    pieces = [end["pieces"][str(token)] for token in commits[1]["token"]]
    case = {"text": end["text"], "commit": 2, "of": len(commits), "tokens": pieces}
    assert guilty_commit(events, [{"cases": [case]}]) == 2
    for other in ({"text": ""}, {"of": 99}, {"tokens": ["?"]}):
        assert guilty_commit(events, [{"cases": [case | other]}]) is None
    assert guilty_commit(events[:-1], [{"cases": [case]}]) is None
