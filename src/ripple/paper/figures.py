"""The report's figures from result lines, as SVG and PNG; matplotlib is imported when they are drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ripple.paper.figures_bars as bars
import ripple.paper.figures_curves as curves
import ripple.paper.figures_points as points
from ripple.analysis.plots import load_pyplot
from ripple.paper.axes import STYLE
from ripple.paper.line_index import LineIndex


def draw(index: LineIndex, folder: Path) -> dict[str, str]:
    """Draw every figure that there are lines for; return their captions by name."""
    pyplot = load_pyplot()
    import matplotlib

    drawn = {}
    with matplotlib.rc_context(STYLE):
        for name, (make, caption) in FIGURES.items():
            figure = make(index, pyplot)
            if figure is None:
                continue
            folder.mkdir(parents=True, exist_ok=True)
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
            figure.savefig(folder / f"{name}.png", bbox_inches="tight")
            pyplot.close(figure)
            drawn[name] = caption
    return drawn


FIGURES: dict[str, tuple[Callable[[LineIndex, Any], Any], str]] = {
    "main": (curves.main, "Accuracy against NFE speed-up; faint points are the other settings of a sweep."),
    "length": (curves.length, "NFE speed-up at three lengths; dashed and hollow: the paper's own numbers."),
    **{
        name: (
            curves.sweep(name),
            f"Accuracy and forwards of RPS against {name}; the paper's own panel is dashed.",
        )
        for name in ("k_max", "r", "tau_pivot")
    },
    "lambda": (curves.sweep("lambda"), "Accuracy and forwards of RPS against λ."),
    "pivot": (
        curves.pivot,
        "Pivot rules and scorings in the accuracy-speed plane; the circled point is RPS.",
    ),
    "breakdown": (bars.breakdown, "Where RPS's time goes; the last bar is the paper's."),
    "caches": (bars.caches, "Throughput of decoders and caches, one request at a time."),
    "oracle": (
        points.oracle_points,
        "Entropy reduction elsewhere against the resolved position's entropy before.",
    ),
    "failure": (bars.failure, "How often the failing program is shorter than the one that works."),
    "bound": (points.bound, "Commits that Proposition 1 certifies and commits observed; area: how often."),
}
