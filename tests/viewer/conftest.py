"""A real browser, where there is one, and traces of real runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ripple
from ripple.trace import Event

QUESTION = "Mia has 2 jars with 10 marbles each and 34 loose marbles. How many marbles are there?"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium of the distribution; its driver is stopped after the module, for it holds an event loop."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages that fail the test if a script fails or complains."""
    pages, faults = [], []

    def complained(said: Any) -> None:
        if said.type == "error" and "Failed to load resource" not in said.text:  # a refusal is no fault
            faults.append(said.text)

    def opened(url: str, width: int = 1200, **context: Any) -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900}, **context)
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", complained)
        page.requests = []
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(url)
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert not faults, faults


@pytest.fixture(scope="package")
def tiny() -> ripple.Engine:
    return ripple.load("tiny-llada", device="cpu")


@pytest.fixture(scope="package")
def traces(tiny: ripple.Engine) -> dict[str, list[Event]]:
    """Traces of one problem by decoder."""
    names = ("rps", "lopa", "wino", "ete")
    prompt = [{"role": "user", "content": QUESTION}]
    results = tiny.generate([prompt] * len(names), [ripple.Options(name, 64, trace=True) for name in names])
    return {name: result.trace or [] for name, result in zip(names, results, strict=True)}
