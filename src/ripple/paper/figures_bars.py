"""Figures of shares and speeds, as bars: where the time goes, caches, how decoders fail."""

from __future__ import annotations

from typing import Any

from ripple.analysis import published
from ripple.analysis.plots import COLOURS
from ripple.bench.grid import paper_rps
from ripple.caches import CACHES
from ripple.paper.axes import PAPER, legend, panels
from ripple.paper.book import Book
from ripple.paper.claims_method import failure_counts
from ripple.paper.experiments import EXPERIMENTS, four
from ripple.paper.tables import METHODS

NORMAL, LOOKAHEAD = "#7fa8d9", COLOURS["rps"]


def breakdown(book: Book, pyplot: Any) -> Any:
    """Draw what share of its time RPS spends in normal and in lookahead forwards."""
    bars: list[tuple[str, dict[str, tuple[float, float]]]] = []
    for model in book.models:
        for task in book.tasks_of(EXPERIMENTS["main"]):
            line = book.timing(model, task, paper_rps(model).describe())
            if line:
                costs = {kind: (f["count"], f["ms"]) for kind, f in line["forwards"].items()}
                bars.append((f"{model}, {task}", costs))
    if not bars:
        return None
    theirs = {kind: (count, ms) for kind, (count, ms, _) in published.BREAKDOWN.items()}
    bars.append(("paper: LLaDA, GSM8K", theirs))
    figure, axes = panels(pyplot, 1, 1, width=8, height=0.45 * len(bars) + 1)
    axis = axes[0][0]
    for y, (_, costs) in enumerate(bars):
        left, spent = 0.0, sum(count * ms for count, ms in costs.values())
        for kind, colour in (("normal", NORMAL), ("lookahead", LOOKAHEAD)):
            count, ms = costs[kind]
            share = 100 * count * ms / spent
            axis.barh(y, share, left=left, color=colour, alpha=0.85, label=f"{kind} forwards", height=0.7)
            if share > 12:
                text = f"{count:.1f} × {ms:.3g} ms"
                axis.text(left + share / 2, y, text, ha="center", va="center", color="white", fontsize=8)
            left += share
    axis.set_yticks(range(len(bars)), [name for name, _ in bars])
    axis.get_yticklabels()[-1].set_color(PAPER)
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    axis.set_xlim(0, 100)
    axis.set_xlabel("share of the time in forwards, %")
    legend(figure, axes)
    return figure


def caches(book: Book, pyplot: Any) -> Any:
    """Draw the throughput of each decoder with each cache, over Default without one."""
    places = [
        (model, task)
        for model in book.models
        for task in book.tasks_of(EXPERIMENTS["caches"])
        if sum(bool(book.tps(model, task, "default", cache)) for cache in CACHES) > 1
    ]
    if not places:
        return None
    models = list(dict.fromkeys(model for model, _ in places))
    columns = -(-len(places) // len(models))
    figure, axes = panels(pyplot, len(models), columns, width=5.0)
    for axis, (model, task) in zip(axes.flat, places, strict=False):
        base = book.tps(model, task, "default")
        for i, setting in enumerate(four(model)):
            method, name = setting.name, setting.describe()
            heights = [(book.tps(model, task, name, cache) or 0) / (base or 1) for cache in CACHES]
            x = [j + (i - 1.5) * 0.2 for j in range(len(CACHES))]
            bars = axis.bar(x, heights, 0.18, color=COLOURS[method], label=METHODS[method])
            axis.bar_label(bars, [f"{h:.1f}" if h else "" for h in heights], fontsize=6.5, padding=1)
        axis.set_xticks(range(len(CACHES)), list(CACHES))
        axis.set_title(f"{model}, {task}")
    figure.supylabel("tok/s over Default without a cache")
    legend(figure, axes)
    return figure


def failure(book: Book, pyplot: Any) -> Any:
    """Draw how often the failing program is the shorter one, for LoPA and for RPS."""
    places = [(m, t) for m in book.models for t in book.tasks_of(EXPERIMENTS["failure"])]
    found = [(f"{m}\n{t}", both) for m, t in places if (both := failure_counts(book, m, t))]
    if not any(one.n for _, both in found for one in both):
        return None
    figure, axes = panels(pyplot, 1, 1, width=1.5 * len(found) + 2.5, height=3)
    axis = axes[0][0]
    for i, method in enumerate(("lopa", "rps")):
        heights = [100 * (both[i].share or 0) for _, both in found]
        x = [j + (i - 0.5) * 0.36 for j in range(len(found))]
        bars = axis.bar(x, heights, 0.34, color=COLOURS[method], label=f"{METHODS[method]} alone fails")
        axis.bar_label(
            bars, [f"{both[i].n_shorter} of {both[i].n}" for _, both in found], fontsize=8, padding=2
        )
    axis.set_xticks(range(len(found)), [name for name, _ in found])
    axis.set_ylim(0, 110)
    axis.set_ylabel("failing program shorter, %")
    legend(figure, axes)
    return figure
