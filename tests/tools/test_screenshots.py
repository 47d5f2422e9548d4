"""The pictures of playground and viewer are there, small, and shown."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_every_picture_that_the_script_takes_is_small_and_shown() -> None:
    source = (ROOT / "tools" / "screenshots.py").read_text()
    table = re.search(r"in \{(.*?)\}\.items\(\)", source)
    assert table is not None
    names = re.findall(r'"(\w+)":', table[1])
    shown = (ROOT / "docs" / "viewer.md").read_text()
    assert names
    for name in names:
        path = ROOT / "docs" / "pictures" / f"{name}.png"
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size <= 150_000
        assert f"(pictures/{name}.png)" in shown
