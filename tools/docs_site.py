"""What the documentation site needs beside `docs/`: pages from elsewhere, lists of decoders and caches.

A hook of mkdocs (`hooks:` in mkdocs.yml). Result tables, the changelog and the guide for contributors are
shown where they are; links between them are rewritten for the site.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from ripple.caches import CACHES
from ripple.decoders import DECODERS, PRESETS
from ripple.fields import fields_of

ROOT = Path(__file__).parent.parent
PAGES = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
SHOWN = (".md", ".svg", ".png")
# Where a link points in the repository -> where on the site; anything else outside docs/ is shown as its
# path.
TARGETS = ((r"\.\./results/", "results/"), (r"docs/", ""), (r"\.\./CONTRIBUTING\.md", "contributing.md"))
OUTSIDE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)*(?:src|tests|tools|recipes|results)/[^)]*(?<!\.md)(?<!\.svg)(?<!\.png)\)"
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and pictures that lie outside docs/."""
    for name, source in PAGES.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    for path in sorted((ROOT / "results").rglob("*")):
        if path.suffix in SHOWN and not path.name.endswith("notes.md"):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links for the site, and fill in the lists."""
    for pattern, target in TARGETS:
        markdown = re.sub(r"\]\(" + pattern, f"]({target}", markdown)
    markdown = OUTSIDE.sub(r"`\1`", markdown)
    return markdown.replace("<!-- decoders -->", _decoders()).replace("<!-- caches -->", _caches())


def _decoders() -> str:
    parts = []
    for name, cls in DECODERS.items():
        presets = [f"`{key}` = `{value.describe()}`" for key, value in PRESETS.items() if value.name == name]
        tail = f"\n\nPresets: {', '.join(presets)}" if presets else ""
        parts.append(f"### {name}\n\n{_first_line(cls)} *{cls.paper}*\n\n{_table(cls)}{tail}")
    return "\n\n".join(parts)


def _caches() -> str:
    parts = []
    for name, cls in CACHES.items():
        paper = f" *{cls.paper}*" if cls.paper else ""
        parts.append(f"### {name}\n\n{_first_line(cls)}{paper}\n\n{_table(cls)}")
    return "\n\n".join(parts)


def _first_line(cls: type) -> str:
    return (inspect.getdoc(cls) or "").split("\n")[0]


def _table(cls: type) -> str:
    rows = ["| field | default | allowed | meaning |", "| --- | --- | --- | --- |"]
    for field in fields_of(cls).values():
        default = str(field.default)
        if field.default is None or isinstance(field.default, bool):
            default = default.lower()
        allowed = field.allowed.replace("|", "&#124;")
        rows.append(f"| `{field.name}` | {default} | {allowed} | {field.about} |")
    return "\n".join(rows)
