"""Figures of shares and speeds, as bars: where the time goes, caches, how decoders fail."""

from __future__ import annotations

from typing import Any

from ripple.analysis.plots import COLOURS
from ripple.eval.settings import four
from ripple.paper import published
from ripple.paper.axes import PAPER, legend, panels
from ripple.paper.claims_method import failure_counts
from ripple.paper.experiments import CACHES, EXPERIMENTS
from ripple.paper.line_index import LineIndex
from ripple.paper.tables import METHODS

NORMAL, LOOKAHEAD = "#7fa8d9", COLOURS["rps"]


def breakdown(index: LineIndex, pyplot: Any) -> Any:
    """Draw what share of its time RPS spends in normal and in lookahead forwards."""
    bars: list[tuple[str, dict[str, tuple[float, float]]]] = []
    for model in index.models:
        for task in index.tasks_of(EXPERIMENTS["main"]):
            line = index.timing(model, task, index.rps(model).describe())
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


def caches(index: LineIndex, pyplot: Any) -> Any:
    """Draw the throughput of each decoder with each cache, over Default without one."""
    places = [
        (model, task)
        for model in index.models
        for task in index.tasks_of(EXPERIMENTS["caches"])
        if sum(bool(index.tps(model, task, "default", cache)) for cache in CACHES) > 1
    ]
    if not places:
        return None
    models = list(dict.fromkeys(model for model, _ in places))
    columns = -(-len(places) // len(models))
    figure, axes = panels(pyplot, len(models), columns, width=5.0)
    for axis, (model, task) in zip(axes.flat, places, strict=False):
        base = index.tps(model, task, "default")
        for i, setting in enumerate(four(index.family(model))):
            name = setting.name
            speeds = [index.tps(model, task, setting.describe(), cache) for cache in CACHES]
            heights = [(tps or 0) / (base or 1) for tps in speeds]
            x = [j + (i - 1.5) * 0.2 for j in range(len(CACHES))]
            bars = axis.bar(x, heights, 0.18, color=COLOURS[name], label=METHODS[name])
            axis.bar_label(bars, [f"{h:.1f}" if h else "" for h in heights], fontsize=6.5, padding=1)
        axis.set_xticks(range(len(CACHES)), list(CACHES))
        axis.set_title(f"{model}, {task}")
    figure.supylabel("tok/s over Default without a cache")
    legend(figure, axes)
    return figure


def failure(index: LineIndex, pyplot: Any) -> Any:
    """Draw how often the failing program is the shorter one, for LoPA and for RPS."""
    places = [(m, t) for m in index.models for t in index.tasks_of(EXPERIMENTS["failure"])]
    pairs = [(f"{m}\n{t}", both) for m, t in places if (both := failure_counts(index, m, t))]
    if not any(counts.n for _, both in pairs for counts in both):
        return None
    figure, axes = panels(pyplot, 1, 1, width=1.5 * len(pairs) + 2.5, height=3)
    axis = axes[0][0]
    for i, name in enumerate(("lopa", "rps")):
        heights = [100 * (both[i].share or 0) for _, both in pairs]
        x = [j + (i - 0.5) * 0.36 for j in range(len(pairs))]
        bars = axis.bar(x, heights, 0.34, color=COLOURS[name], label=f"{METHODS[name]} alone fails")
        axis.bar_label(
            bars, [f"{both[i].n_shorter} of {both[i].n}" for _, both in pairs], fontsize=8, padding=2
        )
    axis.set_xticks(range(len(pairs)), [name for name, _ in pairs])
    axis.set_ylim(0, 110)
    axis.set_ylabel("failing program shorter, %")
    legend(figure, axes)
    return figure
