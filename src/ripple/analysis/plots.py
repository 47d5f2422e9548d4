"""Figures from result lines; matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ripple.analysis.lines import Line
from ripple.analysis.tables import group_lines
from ripple.errors import RippleError

COLOURS = {
    "default": "#555555", "confidence": "#1f77b4", "factor": "#17becf", "frechet": "#2ca02c",
    "klass": "#9467bd", "eb": "#8c564b", "wino": "#e377c2", "lopa": "#ff7f0e", "ete": "#bcbd22",
    "rps": "#d62728",
}  # fmt: skip


def speed_quality(lines: Iterable[Line], path: Path, cache: str = "none") -> None:
    """Draw accuracy against NFE speed-up, one panel per model and family, every setting a point."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise RippleError("Drawing figures needs matplotlib: pip install 'ripple-dllm[plots]'.") from None
    groups = {key: rows for key, rows in sorted(group_lines(lines).items()) if key[1] == cache}
    if not groups:
        raise RippleError(f"There are no result lines with cache {cache!r} to draw.")
    models, families = sorted({key[0] for key in groups}), sorted({key[2] for key in groups})
    figure, axes = pyplot.subplots(
        len(models), len(families), figsize=(3.4 * len(families), 3.0 * len(models)), squeeze=False
    )
    for i, model in enumerate(models):
        for j, family in enumerate(families):
            _panel(axes[i][j], groups.get((model, cache, family), []), f"{model}, {family}")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.supxlabel("times fewer forwards than one token per step")
    figure.supylabel("accuracy, %")
    figure.legend(handles, labels, loc="upper center", ncols=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.94))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def _panel(axis: Any, rows: list[Line], title: str) -> None:
    base = next((row["nfe"] for row in rows if row["method"] == "default"), None)
    for method, colour in COLOURS.items():
        mine = sorted((row for row in rows if row["method"] == method), key=lambda row: -row["nfe"])
        if not mine:
            continue
        x = [(base or row["nfe"]) / row["nfe"] for row in mine]
        y = [100 * row["accuracy"] for row in mine]
        below = [100 * (row["accuracy"] - row["interval"][0]) for row in mine]
        above = [100 * (row["interval"][1] - row["accuracy"]) for row in mine]
        axis.errorbar(x, y, (below, above), fmt="o", ms=4, lw=0.8, color=colour, label=method)
    axis.set_title(title, fontsize=9)
    axis.grid(alpha=0.3)
