"""Tables of the analyses: the oracle's ripple, failures on code, Proposition 1."""

from __future__ import annotations

from ripple.analysis import published
from ripple.bench.grid import paper_rps
from ripple.paper import oracle
from ripple.paper.book import Book
from ripple.paper.claims_method import failure_counts
from ripple.paper.document import PAPER, Table
from ripple.paper.experiments import EXPERIMENTS
from ripple.paper.lengths import Failures
from ripple.paper.tables import percent


def oracle_table(book: Book) -> Table | None:
    """Return the regimes of the oracle analysis by model and task."""
    rows = []
    for model in book.models:
        for task in book.tasks_of(EXPERIMENTS["oracle"]):
            points = [oracle.Point(*p) for line in book.other("oracle", model, task) for p in line["points"]]
            for row in oracle.summary(points) if points else ():
                fall = "–" if row["reduction"] is None else f"{row['reduction']:.4f}"
                rows.append(
                    [f"{model}, {task}", row["regime"], str(row["n"]), fall, percent(row["not_top_1"])]
                )
    columns = ("where", "entropy", "points", "mean fall elsewhere, nats", "oracle token not top-1, %")
    theirs = [PAPER + "LLaDA, GSM8K", "mid", "–", "–", percent(published.NOT_TOP_1)]
    return Table(columns, [*rows, theirs]) if rows else None


def failure_table(book: Book) -> Table | None:
    """Return how often the failing program is shorter than the right one."""
    rows = []
    for model in book.models:
        for task in book.tasks_of(EXPERIMENTS["failure"]):
            both = failure_counts(book, model, task)
            if both:
                rows.append([f"{model}, {task}", *(cell for found in both for cell in _failure_cells(found))])
    columns = ("where", "LoPA alone fails", "shorter, %", "RPS alone fails", "shorter, %")
    return Table(columns, rows) if rows else None


def _failure_cells(found: Failures) -> list[str]:
    return [str(found.n), percent(found.share)]


def bound_table(book: Book) -> Table | None:
    """Return Proposition 1's certified commits beside the observed ones, per search."""
    rows = []
    for model in book.models:
        for task in book.tasks_of(EXPERIMENTS["bound"]):
            lines = book.rows(model, task, [paper_rps(model)])
            pairs = [pair for line in lines for pair in line.get("bound", ())]
            n = sum(count for *_, count in pairs)
            if n:
                means = [sum(pair[i] * pair[3] for pair in pairs) / n for i in (0, 1, 2)]
                broken = sum(count for _, certified, seen, count in pairs if seen < certified)
                tight = sum(count for _, certified, seen, count in pairs if seen == certified)
                cells = [
                    f"{model}, {task}",
                    str(n),
                    *(f"{m:.2f}" for m in means),
                    percent(tight / n),
                    str(broken),
                ]
                rows.append(cells)
    columns = (
        "where",
        "searches",
        "open beside the pivot",
        "certified",
        "observed",
        "bound met exactly, %",
        "broken",
    )
    return Table(columns, rows) if rows else None
