"""Figures from result lines; matplotlib is imported when one is drawn."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ripple.analysis.tables import mean_lines
from ripple.errors import RippleError
from ripple.files import Line, write_whole

COLOURS = {
    "default": "#555555", "confidence": "#1f77b4", "factor": "#17becf", "frechet": "#2ca02c",
    "klass": "#9467bd", "eb": "#8c564b", "wino": "#e377c2", "lopa": "#ff7f0e", "ete": "#bcbd22",
    "learn2pd": "#98df8a", "rps": "#d62728", "glide": "#000000",
}  # fmt: skip
MARKS = ("o", "s", "^", "D", "v")  # one per cache
NEEDS = "needs matplotlib: pip install 'ripple-dllm[plots]'"


def speed_quality(lines: Iterable[Line], path: Path, caches: Sequence[str] = ()) -> None:
    """Draw mean accuracy against NFE speed-up: a panel per model, a mark per cache, the front as a line.

    Without `caches`, all that the lines have are drawn. Every setting is a point of its own.
    """
    every = mean_lines(lines, every=True)
    means = {key: rows for key, rows in every.items() if not caches or key[1] in caches}
    if not means:
        raise RippleError(f"There are no result lines to draw (cache: {', '.join(caches) or 'any'}).")
    pyplot = load_pyplot()
    models = sorted({model for model, _ in means})
    marks = dict(zip(sorted({cache for _, cache in means}), MARKS, strict=False))
    figure, axes = pyplot.subplots(
        1, len(models), figsize=(max(7.0, 5.2 * len(models)), 4.8), squeeze=False, sharey=True
    )
    for axis, model in zip(axes[0], models, strict=True):
        _panel(axis, {cache: rows for (name, cache), rows in means.items() if name == model}, marks)
        axis.set_title(model, fontsize=11)
        axis.set_xlabel("times fewer forwards (NFE) than one token per step")
    axes[0][0].set_ylabel("accuracy, %, mean over the families")
    shown = {row["decoder"] for rows in means.values() for row in rows}
    handles = [
        *(_handle("o", colour, name) for name, colour in COLOURS.items() if name in shown),
        *(_handle(mark, "none", f"cache {cache}") for cache, mark in marks.items()),
    ]
    figure.legend(handles=handles, loc="lower center", ncols=-(-len(handles) // 2), frameon=False)
    figure.tight_layout(rect=(0, 0.12, 1, 1))
    save(figure, path)


def can_draw() -> bool:
    """Say whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw_beside(out: Path, text: str, draw: Callable[[Path], None] | None = None) -> dict[str, str]:
    """Write the tables of a result file and, where matplotlib is installed, its figure; name the files."""
    table, figure = out.with_suffix(".md"), out.with_suffix(".svg")
    write_whole(table, text, "the tables")
    if draw is None:
        return {"files": f"{out}, {table}"}
    if not can_draw():
        return {"files": f"{out}, {table}", "not drawn": f"{figure}, which {NEEDS}"}
    draw(figure)
    return {"files": f"{out}, {table}, {figure}"}


def load_pyplot() -> Any:
    """Import pyplot without a display, or say what to install."""
    if not can_draw():
        raise RippleError(f"Drawing figures {NEEDS}.")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save(figure: Any, path: Path) -> None:
    """Write a figure, the same bytes for the same lines, and close it."""
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    with pyplot.rc_context({"svg.hashsalt": "ripple"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def front(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the (speed, quality) points that no other beats in both, fastest last."""
    best: list[tuple[float, float]] = []
    for point in sorted(points, reverse=True):
        if not best or point[1] > best[-1][1]:
            best.append(point)
    return best[::-1]


def _panel(axis: Any, by_cache: dict[str, list[Line]], marks: dict[str, str]) -> None:
    points = []
    for cache, rows in sorted(by_cache.items()):
        base = next((row["nfe"] for row in rows if row["decoder"] == "default"), None)
        for row in rows if base is not None else ():  # no speed-up without what it is over
            x, y = base / row["nfe"], 100 * row["accuracy"]
            low, high = (100 * end for end in row["interval"])
            axis.errorbar(
                x, y, [[y - low], [high - y]], fmt=marks[cache], ms=8 if row["decoder"] == "rps" else 5.5,
                lw=1, capsize=2, color=COLOURS.get(row["decoder"], "black"),
            )  # fmt: skip
            points.append((x, y))
    if points:
        x, y = zip(*front(points), strict=True)
        axis.plot(x, y, color="#999999", lw=1, ls="--", zorder=0)
        axis.annotate("front", (x[-1], y[-1]), (0, 14), textcoords="offset points", ha="center", fontsize=8)
    axis.margins(x=0.1)
    axis.grid(alpha=0.3)


def _handle(mark: str, colour: str, label: str) -> Any:
    """Return a legend entry; a mark without a colour is drawn hollow."""
    from matplotlib.lines import Line2D

    edge = "#555555" if colour == "none" else colour
    return Line2D([], [], marker=mark, ls="", ms=6, markerfacecolor=colour, markeredgecolor=edge, label=label)
