"""Take the pictures of playground and viewer in docs/pictures, from real runs of tiny-llada.

Run: `python tools/screenshots.py [FOLDER]`. It needs the extra `dev`, and Chromium.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
LARGEST = 150_000  # bytes of a picture
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> int:
    """Take every picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    folder = parser.parse_args().folder
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    if chromium is None:
        print(f"There is no browser; looked for {', '.join(BROWSERS)}.", file=sys.stderr)
        return 2
    with server() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, take in {"playground": playground, "viewer": viewer, "race": race}.items():
            save(folder / f"{name}.png", take(browser, url))
        browser.close()
    return 0


@contextmanager
def server() -> Iterator[str]:
    """Serve tiny-llada and yield the address."""
    command = [
        sys.executable,
        "-m",
        "ripple",
        "serve",
        "--model",
        "tiny-llada",
        "--port",
        "0",
        "--length",
        "96",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"listening at (http://\S+)", line):
                break
        else:
            raise SystemExit("The server did not start.")
        try:
            yield found[1]
        finally:
            process.terminate()


def opened(browser: Any, url: str, scheme: str) -> Any:
    """Open the playground with a word problem in it."""
    page = browser.new_page(
        viewport={"width": 1280, "height": 1400}, device_scale_factor=1.5, color_scheme=scheme,
        reduced_motion="reduce",
    )  # fmt: skip
    page.goto(url)
    page.locator(".decoder").first.wait_for()
    return page


def run(page: Any) -> None:
    """Run what the form says, to its end."""
    page.locator("#run").click()
    page.locator("#share:not([hidden])").wait_for()


def playground(browser: Any, url: str) -> bytes:
    """The whole page after a run."""
    page = opened(browser, url, "light")
    page.get_by_role("button", name="algebra").click()
    run(page)  # which leaves the keyboard to the timeline
    page.keyboard.press("Home")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.locator("h1").click()  # so that nothing has the focus
    return bytes(page.locator("body").screenshot())


def viewer(browser: Any, url: str) -> bytes:
    """A search, while somebody looks at a candidate that lost."""
    page = opened(browser, url, "light")
    page.get_by_label("Decoder 1", exact=True).last.select_option("rps")
    run(page)
    page.locator("h1").click()
    page.keyboard.press("Home")
    page.keyboard.press("p")
    page.locator(".candidates tbody tr:not(.is-chosen)").nth(1).hover()
    return bytes(page.locator(".stage").screenshot())


def race(browser: Any, url: str) -> bytes:
    """Four decoders on one clock, at the moment the first is done."""
    page = opened(browser, url, "dark")
    for i, name in enumerate(("glide", "rps", "wino", "confidence"), start=1):
        if i > 1:
            page.get_by_role("button", name="Add a decoder to race").click()
        page.get_by_label(f"Decoder {i}", exact=True).last.select_option(name)
    run(page)
    clock, lanes = page.get_by_role("slider", name="Time"), page.locator(".lane")
    for t in range(0, 1001, 10):
        clock.fill(str(t))
        if page.locator(".lane.is-done").count():
            break
    assert lanes.count() == 4
    page.locator("h1").click()
    return bytes(page.locator("#view").screenshot())


def save(path: Path, picture: bytes) -> None:
    """Write a picture with few enough colours to be small."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.open(BytesIO(picture)).convert("RGB")
    image.quantize(192, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path}: {image.width} x {image.height}, {size} bytes")
    if size > LARGEST:
        raise SystemExit(f"{path} has {size} bytes, {LARGEST} are allowed.")


if __name__ == "__main__":
    raise SystemExit(main())
