"""A figure of one decoder's settings: what each costs in answers and in forwards beside the decoder's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ripple.analysis.plots import COLOURS, load_pyplot, save
from ripple.analysis.tables import Compared, compared_settings
from ripple.errors import RippleError
from ripple.files import Line


def ablation_figure(lines: Iterable[Line], path: Path, decoder: str = "glide") -> None:
    """Draw a row of panels per model: the difference in accuracy with its interval, and the forwards."""
    rows = [row for row in compared_settings(lines) if row.decoder == decoder]
    groups = sorted({(row.model, row.cache) for row in rows})
    if not groups:
        raise RippleError(f"There are no result lines of {decoder} to draw.")
    pyplot = load_pyplot()
    most = max(sum((row.model, row.cache) == group for row in rows) for group in groups)
    figure, axes = pyplot.subplots(
        len(groups), 2, figsize=(9.0, (0.9 + 0.3 * most) * len(groups)), squeeze=False, sharey="row"
    )
    for (left, right), group in zip(axes, groups, strict=True):
        _panels(left, right, [row for row in rows if (row.model, row.cache) == group])
        left.set_title(f"{group[0]}, cache {group[1]}", fontsize=10, loc="left")
    axes[-1][0].set_xlabel(f"points of accuracy over {decoder}'s own, paired, 95 %")
    axes[-1][1].set_xlabel("forwards per answer (NFE)")
    figure.tight_layout()
    save(figure, path)


def _panels(left: Any, right: Any, rows: Sequence[Compared]) -> None:
    colour = COLOURS.get(rows[0].decoder, "black")
    for y, row in enumerate(reversed(rows)):
        if row.difference is None:
            left.plot(0, y, "|", ms=14, color=colour)
        else:
            difference, half = row.difference
            left.errorbar(100 * difference, y, xerr=100 * half, fmt="o", ms=5, capsize=2, color=colour)
        right.plot(row.nfe, y, "o", ms=5, color=colour)
    left.set_yticks(range(len(rows)), [row.setting for row in reversed(rows)], fontsize=8)
    left.axvline(0, color="#999999", lw=1, ls="--", zorder=0)
    own = next((row.nfe for row in rows if row.difference is None), None)
    if own is not None:
        right.axvline(own, color="#999999", lw=1, ls="--", zorder=0)
    for axis in (left, right):
        axis.grid(alpha=0.3)
