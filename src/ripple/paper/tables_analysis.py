"""Tables of the analyses: the oracle's ripple, failures on code, Proposition 1."""

from __future__ import annotations

from ripple.paper import oracle, published
from ripple.paper.claims_method import failure_counts
from ripple.paper.document import PAPER, ReportTable
from ripple.paper.experiments import EXPERIMENTS
from ripple.paper.failures import Failures
from ripple.paper.line_index import LineIndex
from ripple.paper.tables import percent


def oracle_table(index: LineIndex) -> ReportTable | None:
    """Return the regimes of the oracle analysis by model and task."""
    rows = []
    for model in index.models:
        for task in index.tasks_of(EXPERIMENTS["oracle"]):
            lines = index.analysis("oracle", model, task)
            points = [oracle.OraclePoint(*p) for line in lines for p in line["points"]]
            for row in oracle.summary(points) if points else ():
                fall = "–" if row["reduction"] is None else f"{row['reduction']:.4f}"
                rows.append(
                    [f"{model}, {task}", row["regime"], str(row["n"]), fall, percent(row["not_top_1"])]
                )
    columns = ("where", "entropy", "points", "mean fall elsewhere, nats", "oracle token not top-1, %")
    theirs = [PAPER + "LLaDA, GSM8K", "mid", "–", "–", percent(published.NOT_TOP_1)]
    return ReportTable(columns, [*rows, theirs]) if rows else None


def failure_table(index: LineIndex) -> ReportTable | None:
    """Return how often the failing program is shorter than the right one."""
    rows = []
    for model in index.models:
        for task in index.tasks_of(EXPERIMENTS["failure"]):
            both = failure_counts(index, model, task)
            if both:
                rows.append(
                    [f"{model}, {task}", *(cell for counts in both for cell in _failure_cells(counts))]
                )
    columns = ("where", "LoPA alone fails", "shorter, %", "RPS alone fails", "shorter, %")
    return ReportTable(columns, rows) if rows else None


def _failure_cells(counts: Failures) -> list[str]:
    return [str(counts.n), percent(counts.share)]


def bound_table(index: LineIndex) -> ReportTable | None:
    """Return Proposition 1's certified commits beside the observed ones, per search."""
    rows = []
    for model in index.models:
        for task in index.tasks_of(EXPERIMENTS["bound"]):
            lines = index.rows(model, task, [index.rps(model)])
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
    return ReportTable(columns, rows) if rows else None
