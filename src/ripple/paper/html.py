"""The report as one static page: figures inlined, no script, nothing loaded from elsewhere."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

from ripple.paper.document import PAPER, Heading, Paragraph, Picture, ReportPart, ReportTable, Snapshot

_STYLE = """
:root { --ink: #1c2430; --soft: #5d6b7d; --line: #dfe4ea; --paper: #8a5a00; --back: #fbfbf9; --card: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --soft: #9aa7b7; --line: #303a46; --paper: #e3b45c; --back: #14181d;
    --card: #1b2127; }
  figure.picture { background: #fff; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 2.5rem 1.25rem 5rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { margin: 3rem 0 .75rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { margin: 1.75rem 0 .5rem; color: var(--soft); font-weight: 600; }
nav { display: flex; flex-wrap: wrap; gap: .35rem 1.1rem; margin: 1.25rem 0; font-size: .92rem; }
a { color: inherit; text-decoration-color: var(--soft); text-underline-offset: .2em; }
p { max-width: 48rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums;
  margin: .6rem 0 1.2rem; }
caption { text-align: left; color: var(--soft); padding-bottom: .35rem; }
th, td { padding: .28rem .7rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
table.prose td, table.prose th { white-space: normal; text-align: left; }
th { font-weight: 600; color: var(--soft); }
.published, .published td { color: var(--paper); font-style: italic; }
figure.picture { margin: 1rem 0 1.5rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: 1rem; }
figure.picture svg { width: 100%; height: auto; display: block; }
figcaption { font-size: .88rem; color: var(--soft); margin-top: .6rem; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem;
  overflow-x: auto; font: 13px/1.5 ui-monospace, monospace; white-space: pre-wrap; }
.mask { color: var(--line); } .new { color: #2f7dd1; } .ahead { color: #d1403a; text-decoration: underline; }
.agrees, .leans-the-same-way { color: #2a8a4a; } .differs, .leans-the-other-way { color: #c2453d; }
"""


def page(title: str, blocks: Sequence[ReportPart], folder: Path) -> str:
    """Return the page; figures are read from the folder."""
    links = "".join(
        f'<a href="#{_anchor(block.text)}">{_inline(block.text)}</a>'
        for block in blocks
        if isinstance(block, Heading) and block.level == 2
    )
    body = "\n".join(_html(block, folder) for block in blocks)
    body = body.replace("</h1>", f"</h1>\n<nav>{links}</nav>", 1)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _html(block: ReportPart, folder: Path) -> str:
    if isinstance(block, Heading):
        return f'<h{block.level} id="{_anchor(block.text)}">{_inline(block.text)}</h{block.level}>'
    if isinstance(block, Paragraph):
        return f"<p>{_inline(block.text)}</p>"
    if isinstance(block, Picture):
        picture = _own_names((folder / f"{block.name}.svg").read_text(encoding="utf-8"), block.name)
        caption = f"<figcaption>{_inline(block.caption)}</figcaption>"
        return f'<figure class="picture">{picture}{caption}</figure>'
    if isinstance(block, Snapshot):
        runs = "".join(f'<span class="{state}">{html.escape(text)}</span>' for text, state in block.runs)
        return f"<p>{_inline(block.title)}</p>\n<pre>{runs}</pre>"
    return _table(block)


def _table(table: ReportTable) -> str:
    caption = f"<caption>{_inline(table.caption)}</caption>" if table.caption else ""
    head = "".join(f"<th{_mark(name)}>{_inline(name)}</th>" for name in table.columns)
    rows = []
    for row in table.rows:
        of_paper = ' class="published"' if row[0].startswith(PAPER) else ""
        cells = "".join(
            f"<td{_cell_class(cell, name)}>{_inline(cell)}</td>"
            for cell, name in zip(row, table.columns, strict=True)
        )
        rows.append(f"<tr{of_paper}>{cells}</tr>")
    body = "\n".join(rows)
    inside = f"{caption}<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
    kind = ' class="prose"' if table.is_prose else ""
    return f'<div class="wide"><table{kind}>{inside}</table></div>'


def _mark(name: str) -> str:
    return ' class="published"' if name.startswith(PAPER) else ""


def _cell_class(cell: str, column: str) -> str:
    if column == "verdict":
        return f' class="{cell.replace(" ", "-")}"'
    return _mark(column)


def _inline(text: str) -> str:
    """Escape text; `**x**` becomes bold and a code span monospaced."""
    text = html.escape(text, quote=False)
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", text)
    return re.sub(r"`(.+?)`", r"<code>\1</code>", text)


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _own_names(svg: str, name: str) -> str:
    """Cut the prologue off and make ids unique: several pictures share one page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", svg)
