"""Two scatter figures of many points: the oracle's ripple, and Proposition 1's bound."""

from __future__ import annotations

from typing import Any

from ripple.paper import oracle
from ripple.paper.axes import INK, SOFT, panels
from ripple.paper.experiments import EXPERIMENTS
from ripple.paper.line_index import LineIndex

RANKS = (
    ("oracle token is top-1", 1, 1, "#8fb8de"), ("rank 2 to 3", 2, 3, "#f2b04c"),
    ("rank 4 to 10", 4, 10, "#e2663e"), ("beyond 10", 11, 99, "#8e2f5c"),
)  # fmt: skip
N_BINS = 12


def oracle_points(index: LineIndex, pyplot: Any) -> Any:
    """Draw each oracle commitment: entropy before against mean entropy reduction elsewhere."""
    places = []
    for model in index.models:
        tasks = index.tasks_of(EXPERIMENTS["oracle"])
        lines = [line for task in tasks for line in index.analysis("oracle", model, task)]
        points = [oracle.OraclePoint(*point) for line in lines for point in line["points"]]
        if points:
            places.append((model, points))
    if not places:
        return None
    figure, axes = panels(pyplot, 1, len(places), width=5.4, height=3.8)
    low, high = oracle.band()
    for axis, (model, points) in zip(axes[0], places, strict=True):
        axis.axvspan(low, high, color="#f3e7c9", alpha=0.6, lw=0, label="mid-entropy band")
        for label, least, most, colour in RANKS:
            mine = [p for p in points if least <= p.rank <= most]
            x, y = [p.entropy for p in mine], [p.reduction for p in mine]
            axis.scatter(x, y, s=6, color=colour, alpha=0.55, lw=0, label=label, rasterized=True)
        x, y = _binned(points)
        axis.plot(x, y, "-", color=INK, lw=1.6, label="mean")
        axis.axhline(0, color=SOFT, lw=0.8)
        axis.set_title(f"{model} (n = {len(points)})")
        axis.set_xlabel("entropy before, nats")
        axis.set_ylabel("mean entropy reduction elsewhere, nats")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=6, markerscale=2)
    return figure


def _binned(points: list[oracle.OraclePoint]) -> tuple[list[float], list[float]]:
    """Return mean reductions over equally full bins of entropy, all positions below the band in the first."""
    low, _ = oracle.band()
    certain = [p for p in points if p.entropy < low]
    rest = sorted((p for p in points if p.entropy >= low), key=lambda p: p.entropy)
    size = max(8, -(-len(rest) // N_BINS))
    bins = [certain, *(rest[i : i + size] for i in range(0, len(rest), size))]
    full = [mine for mine in bins if len(mine) >= 4]
    x = [sum(p.entropy for p in mine) / len(mine) for mine in full]
    return x, [sum(p.reduction for p in mine) / len(mine) for mine in full]


def bound(index: LineIndex, pyplot: Any) -> Any:
    """Draw certified against observed commits, one bubble per pair of numbers."""
    places = []
    for model in index.models:
        counts: dict[tuple[int, int], int] = {}
        for task in index.tasks_of(EXPERIMENTS["bound"]):
            for line in index.rows(model, task, [index.rps(model)]):
                for _, certified, observed, count in line.get("bound", ()):
                    counts[certified, observed] = counts.get((certified, observed), 0) + count
        if counts:
            places.append((model, counts))
    if not places:
        return None
    figure, axes = panels(pyplot, 1, len(places), width=4.2, height=3.9)
    for axis, (model, counts) in zip(axes[0], places, strict=True):
        top = max(max(pair) for pair in counts) + 1
        area = 260 / max(counts.values())
        x, y = [c for c, _ in counts], [o for _, o in counts]
        axis.plot([0, top], [0, top], "-", color=SOFT, lw=1, label="the bound")
        sizes = [max(4.0, area * n) for n in counts.values()]
        axis.scatter(x, y, s=sizes, color="#d62728", alpha=0.45, lw=0, label="searches")
        axis.set_title(f"{model} (n = {sum(counts.values())})")
        axis.set_xlabel("commits certified by mean entropy")
        axis.set_ylabel("positions that reached τ")
        axis.set_aspect("equal")
    axes[0][0].legend(loc="lower right", markerscale=0.6)
    return figure
