"""What the figures share: panels, one legend for all of them, colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ripple.files import Line

INK, SOFT, PAPER = "#1c2430", "#8793a3", "#b0832f"  # PAPER marks the paper's own numbers
STYLE: dict[Any, Any] = {
    "font.size": 9, "axes.titlesize": 10, "axes.spines.top": False, "axes.spines.right": False,
    "axes.edgecolor": SOFT, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.grid": True, "axes.axisbelow": True,
    "grid.alpha": 0.25, "figure.dpi": 110, "savefig.dpi": 150, "svg.hashsalt": "ripple",
    "legend.frameon": False,
}  # fmt: skip


def panels(pyplot: Any, n_rows: int, n_columns: int, width: float = 3.3, height: float = 2.7) -> Any:
    """Return a figure and its grid of axes."""
    size = (width * n_columns, height * n_rows)
    return pyplot.subplots(n_rows, n_columns, figsize=size, squeeze=False, layout="constrained")


def legend(figure: Any, axes: Any) -> None:
    """Put one legend above all panels, each label once."""
    handles: dict[str, Any] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        columns = min(len(handles), 8)
        figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=columns)


def errors_of(rows: Sequence[Line]) -> list[list[float]]:
    """Return how far each line's interval reaches below and above its accuracy, in points."""
    below = [max(0.0, 100 * (row["accuracy"] - row["interval"][0])) for row in rows]
    above = [max(0.0, 100 * (row["interval"][1] - row["accuracy"])) for row in rows]
    return [below, above]
