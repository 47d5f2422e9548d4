"""Which commits of a decoder cost an answer, from the lines of `ripple bench blame`: a table and a figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ripple.analysis.plots import load_pyplot, save
from ripple.files import Line

GROUPS = ("standard", "fallback", "pivot, rank 1", "pivot, rank 2", "pivot, rank 3+")
TITLES = {"rps": "RPS", "glide": "glide"}


def blame_table(lines: Sequence[Line]) -> str:
    """Return Markdown: what was lost, how many commits of each kind there were, and how many were guilty."""
    why = (
        "Lost: one token per step solves the item and the decoder does not. Of each kind of commit: guilty / "
        "all. A guilty commit is one before which one token per step still solves the item and after which "
        "it fails."
    )
    parts = [f"# Which commits cost an answer\n\n{why}\n"]
    for length in sorted({line["length"] for line in lines}, reverse=True):
        for name, mine in _by_decoder([line for line in lines if line["length"] == length]).items():
            parts.append(f"## {TITLES.get(name, name)}, canvas {length}\n\n{_counts(mine)}\n{_cases(mine)}")
    return "\n".join(parts)


def _by_decoder(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Group lines by their decoder, in the order of first appearance."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line["setting"].partition(":")[0], []).append(line)
    return groups


def _counts(lines: Sequence[Line]) -> str:
    head = ["model", "family", "n", "solved", "lost", *GROUPS]
    out = [f"| {' | '.join(head)} |", f"| --- | --- |{' ---: |' * (len(head) - 2)}"]
    for line in lines:
        cells = [line["model"], line["task"], *(str(line[x]) for x in ("n", "solved", "lost"))]
        cells += [_share(line["guilty"].get(g, 0), line["commits"].get(g, 0)) for g in GROUPS]
        out.append(f"| {' | '.join(cells)} |")
    guilty, commits = _total(lines, "guilty"), _total(lines, "commits")
    totals = [str(sum(line[name] for line in lines)) for name in ("n", "solved", "lost")]
    cells = ["all", "", *totals, *(_share(guilty[g], commits[g]) for g in GROUPS)]
    return "\n".join([*out, f"| {' | '.join(cells)} |"]) + "\n"


def blame_figure(lines: Sequence[Line], path: Path) -> None:
    """Draw, for the largest canvas, the guilty share of each kind of commit and the entropies of pivots.

    A row of panels per decoder.
    """
    pyplot = load_pyplot()
    largest = max((line["length"] for line in lines), default=0)
    groups = _by_decoder([line for line in lines if line["length"] == largest])
    figure, axes = pyplot.subplots(
        max(1, len(groups)), 2, figsize=(9, 3.4 * max(1, len(groups))), squeeze=False
    )
    for (left, right), (name, mine) in zip(axes, groups.items(), strict=False):
        _shares(left, mine)
        left.set_title(TITLES.get(name, name), fontsize=10, loc="left")
        _entropies(right, mine)
    figure.tight_layout()
    save(figure, path)


def _shares(left: Any, lines: Sequence[Line]) -> None:
    guilty, commits = _total(lines, "guilty"), _total(lines, "commits")
    shares = [100 * guilty[g] / max(1, commits[g]) for g in GROUPS]
    bars = left.barh(GROUPS, shares, color=["#7f7f7f"] * 2 + ["#d62728"] * 3)
    left.bar_label(bars, [f" {guilty[g]} of {commits[g]}" for g in GROUPS], fontsize=8)
    left.invert_yaxis()
    left.set_xlim(0, 1.35 * max(shares, default=0) or 1)
    left.set_xlabel("commits that cost the answer, %")


def _entropies(axis: Any, lines: Sequence[Line]) -> None:
    width = lines[0]["bin_nats"] if lines else 1.0
    for name, label, colour in (
        ("pivots_by_entropy", "all pivots committed", "#bbbbbb"),
        ("guilty_by_entropy", "guilty ones", "#d62728"),
    ):
        counts = _total(lines, name)
        n = max(1, counts.total())
        edges = sorted(counts, key=float)
        axis.bar(
            [float(edge) + width / 2 for edge in edges], [100 * counts[edge] / n for edge in edges],
            width=width, color=colour, alpha=0.7, label=f"{label} ({counts.total()})",
        )  # fmt: skip
    axis.set_xlabel("entropy of the pivot before its commit, nats")
    axis.set_ylabel("share, %")
    axis.legend(frameon=False, fontsize=8)


def _cases(lines: Sequence[Line]) -> str:
    out = ["| model | item | commit | cause | rank | entropy | p | tokens |", "| --- " * 8 + "|"]
    for line in lines:
        for case in line["cases"]:
            tokens = " ".join(f"`{token!r}`" for token in case["tokens"][:4]).replace("|", "\\|")
            more = f" and {len(case['tokens']) - 4} more" if len(case["tokens"]) > 4 else ""
            where = f"{case['commit']} of {case['of']}"
            numbers = f"{case['rank']} | {case['entropy']:.2f} | {case['p']:.2f}"
            what = f"{case['item']} | {where} | {case['cause']} | {numbers}"
            out.append(f"| {line['model']} | {what} | {tokens}{more} |")
    return "\n".join(out) + "\n"


def _share(part: int, whole: int) -> str:
    return f"{part} / {whole}"


def _total(lines: Sequence[Line], name: str) -> Counter[str]:
    return sum((Counter(line[name]) for line in lines), Counter[str]())
