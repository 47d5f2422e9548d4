"""/docs in a real browser: every route, every shape and every option can be read there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ripple.fields import fields_of
from ripple.options import Options
from tests.server.conftest import Server
from tests.viewer.conftest import browser, open_page  # noqa: F401

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


@pytest.fixture
def page(open_page: Callable[..., Any], server: Server) -> Any:  # noqa: F811
    page = open_page(f"{server.url}/docs")
    page.locator("html[data-ready]").wait_for(state="attached")
    return page


def test_routes_and_shapes_are_tables_that_refer_to_each_other(page: Any, server: Server) -> None:
    with server.http() as http:
        schema = http.get("/openapi.json").json()
    titles = set(page.locator("h2, h3").all_text_contents())
    assert {
        f"{method.upper()} {path}" for path, routes in schema["paths"].items() for method in routes
    } <= titles
    assert set(schema["components"]["schemas"]) <= titles
    text = page.locator("main").text_content()
    assert not any(raw in text for raw in ("$ref", "undefined", "[object", "{\n"))
    links = page.locator("a[href^='#']").evaluate_all("nodes => nodes.map(node => node.getAttribute('href'))")
    targets = page.locator("[id]").evaluate_all("nodes => nodes.map(node => `#${node.id}`)")
    assert len(set(links)) > 20 and set(links) <= set(targets)
    heads = page.locator("table").evaluate_all("nodes => nodes.map(node => node.tHead?.rows[0].cells.length)")
    assert len(heads) > 20 and set(heads) == {3}
    assert "docs/server.md" not in text, "there is no such file beside this page"


def test_every_option_of_a_request_is_listed_with_its_meaning(page: Any) -> None:
    rows = page.locator("h3#RippleOptions ~ .wide").first.locator("tr").all_text_contents()
    for name, field in fields_of(Options).items():
        assert any(row.startswith(name) and field.about in row for row in rows), name
    assert any(row.startswith("lam") and "weight of plausibility" in row for row in rows)


def test_the_page_is_as_wide_as_a_telephone_and_asks_nobody_else(page: Any, server: Server) -> None:
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert all(url.startswith((server.url, "data:")) for url in page.requests)
