"""A report as a list of blocks, written as Markdown; `html.py` writes the same blocks as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

PAPER = "paper: "  # how a row or column of the paper's own numbers begins


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the report's title."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class ReportTable:
    """Rows of text; `**x**` is bold. Rows whose first cell begins with PAPER are the paper's own."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    is_prose: bool = False  # sentences, not numbers


@dataclass(frozen=True)
class Picture:
    """A picture that lies beside the report as NAME.svg and NAME.png."""

    name: str
    caption: str


@dataclass(frozen=True)
class Snapshot:
    """A response while it is being decoded: runs of (text, state)."""

    title: str
    runs: Sequence[Sequence[str]] = field(default_factory=tuple)


ReportPart = Heading | Paragraph | ReportTable | Picture | Snapshot


def markdown(blocks: Sequence[ReportPart]) -> str:
    """Return the report as Markdown."""
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def _markdown(block: ReportPart) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {block.text}"
    if isinstance(block, Paragraph):
        return block.text
    if isinstance(block, Picture):
        return f"![{block.caption}]({block.name}.svg)\n\n*{block.caption}*"
    if isinstance(block, Snapshot):
        return f"{block.title}\n\n```\n{''.join(_marked(text, state) for text, state in block.runs)}\n```"
    rule = "---" if block.is_prose else "---:"
    rows = [block.columns, ["---", *[rule] * (len(block.columns) - 1)], *block.rows]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"*{block.caption}*\n\n{table}" if block.caption else table


def _marked(text: str, state: str) -> str:
    """Mark what is new with ‹ ›, and what a lookahead committed with « »."""
    marks = {"new": ("‹", "›"), "ahead": ("«", "»")}.get(state, ("", ""))
    return marks[0] + text + marks[1]
