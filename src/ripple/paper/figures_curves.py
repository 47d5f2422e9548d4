"""Figures of accuracy and forwards: the main results, lengths, hyper-parameters, the ablation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ripple.analysis.plots import COLOURS
from ripple.eval.settings import four, pivots, seven_swept
from ripple.paper import published
from ripple.paper.axes import INK, PAPER, SOFT, errors_of, legend, panels
from ripple.paper.experiments import EXPERIMENTS, MIRRORS
from ripple.paper.line_index import LineIndex, best_setting
from ripple.paper.tables import METHODS, scoring_of

_PIVOTS = {
    "mid_entropy": "#d62728", "max_confidence": "#1f77b4", "max_entropy": "#9467bd", "random": "#7f7f7f",
}  # fmt: skip
_SCORINGS = {"full": "o", "entropy only": "^", "greedy": "s"}


def main(index: LineIndex, pyplot: Any) -> Any:
    """Draw accuracy against NFE speed-up, a panel per model and task."""
    tasks = index.tasks_of(EXPERIMENTS["main"])
    rows = {(m, t): index.rows(m, t, seven_swept(index.family(m))) for m in index.models for t in tasks}
    if not any(best_setting(mine, "default") and len(mine) > 1 for mine in rows.values()):
        return None
    figure, axes = panels(pyplot, len(index.models), len(tasks))
    for i, model in enumerate(index.models):
        for j, task in enumerate(tasks):
            axis, mine = axes[i][j], rows[model, task]
            base = best_setting(mine, "default")
            for name in published.METHODS:
                best = best_setting(mine, name)
                if best is None or base is None:
                    continue
                others = [r for r in mine if r["decoder"] == name and r is not best]
                x = [base["nfe"] / r["nfe"] for r in others]
                axis.plot(x, [100 * r["accuracy"] for r in others], "o", ms=3, alpha=0.3, color=COLOURS[name])
                axis.errorbar(
                    [base["nfe"] / best["nfe"]], [100 * best["accuracy"]], errors_of([best]), fmt="o", ms=6,
                    lw=1, color=COLOURS[name], label=METHODS[name],
                )  # fmt: skip
            if base is None:
                axis.set_axis_off()
                continue
            axis.set_title(f"{model}, {task}")
            axis.set_xscale("log")
            most = max(base["nfe"] / row["nfe"] for row in mine)
            axis.set_xticks(ticks := [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= 2 * most], map(str, ticks))
            axis.set_xlim(0.85, 1.2 * most)
            axis.minorticks_off()
    figure.supxlabel("times fewer forwards than Default")
    figure.supylabel("accuracy, %")
    legend(figure, axes)
    return figure


def length(index: LineIndex, pyplot: Any) -> Any:
    """Draw the NFE speed-up at three lengths, the paper's beside ours."""
    experiment = EXPERIMENTS["length"]
    tasks, lengths = index.tasks_of(experiment), [round(s * index.length) for s in experiment.lengths]
    places = [("none", length) for length in lengths]
    rows_at = {}
    for model, task in itertools.product(index.models, tasks):
        by_length = index.across(model, task, four(index.family(model)), places)
        rows_at[model, task] = [{row["decoder"]: row for row in rows} for rows in by_length]
    if not any("default" in at for ats in rows_at.values() for at in ats):
        return None
    figure, axes = panels(pyplot, len(index.models), len(tasks), width=4.2)
    for i, model in enumerate(index.models):
        for j, task in enumerate(tasks):
            axis = axes[i][j]
            if not any(rows_at[model, task]):
                axis.set_axis_off()
                continue
            for name in [s.name for s in four(index.family(model))][1:]:
                at = [
                    (n, f)
                    for n, f in zip(lengths, rows_at[model, task], strict=True)
                    if {name, "default"} <= f.keys()
                ]
                x, y = [n for n, _ in at], [f["default"]["nfe"] / f[name]["nfe"] for _, f in at]
                axis.plot(x, y, "o-", color=COLOURS[name], label=METHODS[name])
                theirs = published.LENGTH.get(index.counterpart(model), {}).get(MIRRORS.get(task, task), {})
                if name in theirs:
                    y = [row.nfe_speedup for row in theirs[name].values()]
                    label = f"paper: {METHODS[name]}"
                    axis.plot(
                        [*theirs[name]], y, "o--", mfc="white", lw=0.9, color=COLOURS[name], label=label
                    )
            axis.set_title(f"{model}, {task}")
            axis.set_xscale("log", base=2)
            axis.set_xticks(
                sorted({*lengths, 128, 256, 512}), [str(n) for n in sorted({*lengths, 128, 256, 512})]
            )
    figure.supxlabel("generation length")
    figure.supylabel("NFE speed-up over Default")
    legend(figure, axes)
    return figure


def sweep(name: str) -> Any:
    """Return the drawer of one hyper-parameter of RPS: accuracy and forwards against its value."""
    field = "lam" if name == "lambda" else name

    def make(index: LineIndex, pyplot: Any) -> Any:
        places = [(m, t) for m in index.models for t in index.tasks_of(EXPERIMENTS[name])]
        rows = {
            place: [r for r in index.of_experiment(name, *place) if r["decoder"] == "rps"] for place in places
        }
        rows = {place: mine for place, mine in rows.items() if len(mine) > 1}
        theirs = published.SWEEPS.get(name, {})
        if not rows:
            return None
        figure, axes = panels(pyplot, 1, len(rows) + bool(theirs), width=3.9)
        for axis, ((model, task), mine) in zip(axes[0], rows.items(), strict=False):
            x = [row["fields"][field] for row in mine]
            y = [100 * row["accuracy"] for row in mine]
            _two_scales(axis, x, y, [row["nfe"] for row in mine], errors_of(mine), f"{model}, {task}")
        if theirs:
            y = [row.accuracy for row in theirs.values()]
            nfe = [row.nfe for row in theirs.values()]
            _two_scales(axes[0][-1], list(theirs), y, nfe, None, "paper: LLaDA, GSM8K", of_paper=True)
        for axis in axes[0]:
            axis.set_xlabel({"lambda": "λ", "tau_pivot": "τ_pivot"}.get(name, name))
        legend(figure, axes)
        return figure

    return make


def _two_scales(
    axis: Any, x: Sequence[float], accuracy: Sequence[float], nfe: Sequence[float], errors: Any, title: str,
    of_paper: bool = False,
) -> None:  # fmt: skip
    style = {"ls": "--", "mfc": "white"} if of_paper else {"ls": "-"}
    how = {
        "color": COLOURS["rps"],
        "marker": "o",
        "capsize": 2,
        "elinewidth": 1,
        "label": "accuracy, %",
        **style,
    }
    axis.errorbar(x, accuracy, errors, **how)
    axis.set_ylabel("accuracy, %", color=COLOURS["rps"])
    right = axis.twinx()
    right.plot(x, nfe, marker="s", color=COLOURS["confidence"], ms=4, **style)
    right.set_ylabel("NFE", color=COLOURS["confidence"])
    right.grid(False)
    right.set_ylim(0, 1.25 * max(nfe))
    axis.plot([], [], "s-", color=COLOURS["confidence"], ms=4, label="NFE (right scale)")
    axis.set_title(title, color=PAPER if of_paper else INK)
    axis.set_xticks(list(x), [f"{value:g}" for value in x])


def pivot(index: LineIndex, pyplot: Any) -> Any:
    """Draw pivot rules and scorings in the accuracy-speed plane."""
    places = [(m, t) for m in index.models for t in index.tasks_of(EXPERIMENTS["pivot"])]
    rows = {place: index.rows(*place, pivots(index.family(place[0]))) for place in places}
    rows = {
        place: mine
        for place, mine in rows.items()
        if mine and mine[0]["decoder"] == "default" and len(mine) > 3
    }
    if not rows:
        return None
    figure, axes = panels(pyplot, 1, len(rows), width=4.4, height=3.4)
    for axis, ((model, task), mine) in zip(axes[0], rows.items(), strict=True):
        base = mine[0]["nfe"]
        for row in reversed(mine[1:]):  # RPS itself, which comes first, lies on top
            pivot, scoring = row["fields"]["pivot"], scoring_of(row)
            full = {"mec": INK, "ms": 10} if (pivot, scoring) == ("mid_entropy", "full") else {"ms": 7}
            axis.plot(
                base / row["nfe"], 100 * row["accuracy"], _SCORINGS[scoring], color=_PIVOTS[pivot], **full
            )
        for pivot, colour in _PIVOTS.items():
            axis.plot([], [], "o", color=colour, label=pivot.replace("_", " "))
        for scoring, marker in _SCORINGS.items():
            axis.plot([], [], marker, color=SOFT, label=f"score: {scoring}")
        axis.set_title(f"{model}, {task}")
        axis.set_xlabel("NFE speed-up over Default")
        axis.set_ylabel("accuracy, %")
    legend(figure, axes)
    return figure
