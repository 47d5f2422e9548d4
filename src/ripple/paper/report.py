"""Writes the report: Markdown, figures, and a page that holds everything. `ripple paper --draw --out DIR`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ripple.analysis.plots import NEEDS, can_draw
from ripple.errors import RippleError
from ripple.eval.lines import read_results
from ripple.files import Line, write_whole
from ripple.paper import figures, tables, tables_analysis
from ripple.paper.document import Heading, Paragraph, Picture, ReportPart, ReportTable, Snapshot, markdown
from ripple.paper.experiments import EXPERIMENTS
from ripple.paper.html import page
from ripple.paper.judge import Judgement
from ripple.paper.judgements import judgements
from ripple.paper.line_index import LineIndex
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
    """Draw everything that the folder's lines allow, and say where it is.

    Without matplotlib everything but the figures is written, and the report says which are missing.
    """
    index = LineIndex(read_results(folder / LINES))
    if not index.lines:
        raise RippleError(f"There are no result lines in {folder / LINES}; run `ripple paper` first.")
    drawn = figures.draw(index, folder) if can_draw() else {}
    notes = folder / NOTES
    blocks = list(compose(index, drawn, notes.read_text(encoding="utf-8") if notes.exists() else ""))
    write_whole(folder / "report.md", markdown(blocks), "the report")
    write_whole(folder / "index.html", page(TITLE, blocks, folder), "the report")
    what = f"{len(drawn)} figures, from {len(index.lines)} lines"
    return f"{folder / 'report.md'}, {folder / 'index.html'} and {what}"


def compose(index: LineIndex, drawn: dict[str, str], notes: str = "") -> Iterator[ReportPart]:
    """Yield the report's blocks; `drawn` holds the captions of the figures there are, by experiment."""
    yield Heading(TITLE, 1)
    yield Paragraph(_setting(index))
    for paragraph in notes.split("\n\n") if notes else ():
        yield Paragraph(" ".join(paragraph.split()))
    statements = judgements(index)
    yield Heading("Where we agree with the paper, and where we do not")
    yield Paragraph(_tally(statements))
    rows = [(s.claim, s.ours, s.verdict) for s in statements]
    yield ReportTable(("the paper says", "our lines say", "verdict"), rows, is_prose=True)
    for name, experiment in EXPERIMENTS.items():
        body = list(_SECTIONS[name](index))
        if not body:
            continue
        yield Heading(experiment.title)
        yield Paragraph(_ABOUT[name])
        if name in drawn:
            yield Picture(name, drawn[name])
        elif name in figures.FIGURES and not can_draw():
            yield Paragraph(f"The figure `{name}.svg` is missing: drawing it {NEEDS}.")
        yield from body


def _setting(index: LineIndex) -> str:
    """Say what was measured, on what, and whose numbers stand where."""
    runs = [line for line in index.lines if line["kind"] == "summary"]
    counts = sorted({line["n"] for line in runs})
    devices = sorted({f"{line['device_name']} in {line['dtype']}" for line in index.lines})
    n_items = " or ".join(map(str, counts)) or "no"
    return (
        f"Models {', '.join(index.models)} on {', '.join(index.tasks)}; base length {index.length}, "
        f"block 32, {n_items} items per task; {', '.join(devices)}. "
        f"Drawn from {len(index.lines)} lines of `{LINES}`. "
        "What begins with “paper:” is the published number of arXiv 2608.11742, on LLaDA-8B-Instruct or "
        "Dream-7B; a family stands beside the benchmark it mirrors, which is a comparison of patterns, not "
        "of values."
    )


def _tally(statements: Sequence[Judgement]) -> str:
    names = dict.fromkeys(s.verdict for s in statements)
    counts = ", ".join(f"{name}: {sum(s.verdict == name for s in statements)}" for name in names)
    return (
        f"Of {len(statements)} statements that these lines can be held against: {counts}. A verdict on "
        "accuracy needs an exact McNemar test at 5 % over all items concerned, one that nothing is lost a "
        "95 % interval that stays above minus one point; without it the lines only lean one way, or cannot "
        "tell. Every sentence below is computed from the lines."
    )


def _failure(index: LineIndex) -> Iterator[ReportPart]:
    table = tables_analysis.failure_table(index)
    if table is not None:
        yield table
    for model in index.models:
        for task in index.tasks_of(EXPERIMENTS["failure"]):
            for line in index.analysis("snapshots", model, task)[-1:]:
                yield from _example(line)


def _example(line: Line) -> Iterator[ReportPart]:
    yield Heading(f"One example: {line['model']}, {line['item']}", 3)
    yield Paragraph(
        "Blue (‹›): committed since the snapshot before; red («»): committed by lookahead; ■: masked."
    )
    yield Snapshot("The prompt:", [(line["prompt"], "old")])
    for name, side in line["sides"].items():
        verdict = "right" if side["right"] else "wrong"
        for shot in side["snapshots"]:
            where = f"after forward {shot['nfe']} of {side['nfe']}"
            yield Snapshot(f"{tables.METHODS[name]} ({verdict}), {where}:", shot["runs"])


def _one(make: Callable[[LineIndex], ReportTable | None]) -> Callable[[LineIndex], Iterator[ReportPart]]:
    def section(index: LineIndex) -> Iterator[ReportPart]:
        table = make(index)
        if table is not None:
            yield table

    return section


def _sweep(name: str) -> Callable[[LineIndex], Iterator[ReportPart]]:
    return lambda index: tables.sweep_tables(index, name)


_SECTIONS: dict[str, Callable[[LineIndex], Iterator[ReportPart]]] = {
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
