"""Writes the report: Markdown, figures, and a page that holds everything. `ripple paper --draw --out DIR`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ripple.analysis.lines import Line, read_lines
from ripple.errors import RippleError
from ripple.paper import figures, tables, tables_analysis
from ripple.paper.book import Book
from ripple.paper.document import Block, Figure, Heading, Snapshot, Table, Text, markdown
from ripple.paper.experiments import EXPERIMENTS
from ripple.paper.findings import findings
from ripple.paper.html import page
from ripple.paper.judge import Finding
from ripple.paper.run import LINES

NOTES = "notes.md"  # what the lines cannot say of how they came about; copied in
TITLE = "Ripple-Pivot Search, reproduced"
_ABOUT = {
    "main": "Accuracy with its 95 % interval (Wilson), forwards per response (NFE), tokens per second. Of a "
    "baseline's sweep the most accurate setting is shown, the one with fewest forwards on ties, as the paper "
    "allows; RPS always has the paper's hyper-parameters with λ = 0.1, chosen before looking. Tokens per "
    "second are those of one request at a time, alone on the device. Best in bold.",
    "length": "The same model and items on canvases of half and twice the base length.",
    "lambda": "The weight of plausibility in RPS's score; the setting of the main table in bold.",
    "k_max": "How many tokens a search may try.",
    "r": "How probable a candidate must be, relative to the most probable token.",
    "tau_pivot": "How much probability the k_max tokens must hold for a position to become the pivot.",
    "pivot": "Which position is searched, and how its tokens are scored: with the full score, with its "
    "entropy term alone (λ = 0), or not at all (`greedy`: the top-1 token against staying masked).",
    "breakdown": "RPS's forwards from traces, one request at a time.",
    "caches": "Every cache with the decoders of the length table.",
    "oracle": "From blocks that are a quarter, a half and three quarters decoded, each masked position is "
    "committed, alone, to the token that it has in the finished and correct response; every what-if is an "
    "exact forward. The mid-entropy band runs from h(τ), below which a position passes the standard commit, "
    "to log k_max, above which no distribution lies within the tokens of a search.",
    "failure": "Items that exactly one of LoPA and RPS solves: is the failing program the shorter one, in "
    "non-empty lines?",
    "bound": "After each search: positions that the adopted branch's mean entropy certifies to be "
    "committable at τ, against those that were.",
}


def write(folder: Path) -> str:
    """Draw everything that the folder's lines allow, and say where it is."""
    lines = read_lines(folder / LINES)
    if not lines:
        raise RippleError(f"There are no result lines in {folder / LINES}; run `ripple paper` first.")
    book = Book(lines)
    drawn = figures.draw(book, folder)
    notes = folder / NOTES
    blocks = list(compose(book, drawn, notes.read_text(encoding="utf-8") if notes.exists() else ""))
    (folder / "report.md").write_text(markdown(blocks), encoding="utf-8")
    (folder / "index.html").write_text(page(TITLE, blocks, folder), encoding="utf-8")
    what = f"{len(drawn)} figures, from {len(lines)} lines"
    return f"{folder / 'report.md'}, {folder / 'index.html'} and {what}"


def compose(book: Book, drawn: dict[str, str], notes: str = "") -> Iterator[Block]:
    """Yield the report's blocks; `drawn` holds the captions of the figures there are, by experiment."""
    yield Heading(TITLE, 1)
    yield Text(_setting(book))
    for paragraph in notes.split("\n\n") if notes else ():
        yield Text(" ".join(paragraph.split()))
    found = findings(book)
    yield Heading("Where we agree with the paper, and where we do not")
    yield Text(_tally(found))
    rows = [(f.claim, f.ours, f.verdict) for f in found]
    yield Table(("the paper says", "our lines say", "verdict"), rows, is_prose=True)
    for name, experiment in EXPERIMENTS.items():
        body = list(_SECTIONS[name](book))
        if not body:
            continue
        yield Heading(experiment.title)
        yield Text(_ABOUT[name])
        if name in drawn:
            yield Figure(name, drawn[name])
        yield from body


def _setting(book: Book) -> str:
    """Say what was measured, on what, and whose numbers stand where."""
    runs = [line for line in book.lines if line["bench"] == "decoders"]
    counts = sorted({line["n"] for line in runs})
    devices = sorted({f"{line['device']} in {line['dtype']}" for line in book.lines})
    n_items = " or ".join(map(str, counts)) or "no"
    return (
        f"Models {', '.join(book.models)} on {', '.join(book.tasks)}; base length {book.length}, block 32, "
        f"{n_items} items per task; {', '.join(devices)}. Drawn from {len(book.lines)} lines of `{LINES}`. "
        "What begins with “paper:” is the published number of arXiv 2608.11742, on LLaDA-8B-Instruct or "
        "Dream-7B; a family stands beside the benchmark it mirrors, which is a comparison of patterns, not "
        "of values."
    )


def _tally(found: Sequence[Finding]) -> str:
    names = dict.fromkeys(f.verdict for f in found)
    counts = ", ".join(f"{name}: {sum(f.verdict == name for f in found)}" for name in names)
    return (
        f"Of {len(found)} statements that these lines can be held against: {counts}. A verdict on accuracy "
        "needs an exact McNemar test at 5 % over all items concerned, one that nothing is lost a 95 % "
        "interval that stays above minus one point; without it the lines only lean one way, or cannot tell. "
        "Every sentence below is computed from the lines."
    )


def _failure(book: Book) -> Iterator[Block]:
    table = tables_analysis.failure_table(book)
    if table is not None:
        yield table
    for model in book.models:
        for task in book.tasks_of(EXPERIMENTS["failure"]):
            for line in book.other("snapshots", model, task)[-1:]:
                yield from _example(line)


def _example(line: Line) -> Iterator[Block]:
    yield Heading(f"One example: {line['model']}, {line['item']}", 3)
    yield Text("Blue (‹›): committed since the snapshot before; red («»): committed by lookahead; ■: masked.")
    yield Snapshot("The prompt:", [(line["prompt"], "old")])
    for method, side in line["sides"].items():
        verdict = "right" if side["right"] else "wrong"
        for shot in side["snapshots"]:
            where = f"after forward {shot['nfe']} of {side['nfe']}"
            yield Snapshot(f"{tables.METHODS[method]} ({verdict}), {where}:", shot["runs"])


def _one(make: Callable[[Book], Table | None]) -> Callable[[Book], Iterator[Block]]:
    def section(book: Book) -> Iterator[Block]:
        table = make(book)
        if table is not None:
            yield table

    return section


def _sweep(name: str) -> Callable[[Book], Iterator[Block]]:
    return lambda book: tables.sweep_tables(book, name)


_SECTIONS: dict[str, Callable[[Book], Iterator[Block]]] = {
    "main": tables.main_table,
    "length": tables.length_tables,
    **{name: _sweep(name) for name in ("lambda", "k_max", "r", "tau_pivot")},
    "pivot": tables.pivot_tables,
    "breakdown": _one(tables.breakdown_table),
    "caches": tables.cache_tables,
    "oracle": _one(tables_analysis.oracle_table),
    "failure": _failure,
    "bound": _one(tables_analysis.bound_table),
}
