"""How a statement of the paper is judged by result lines: the rules, and nothing about any statement.

Accuracy is weighed by an exact McNemar test over all tables a statement speaks of: `agrees` and `differs`
need p < 0.05, otherwise the lines only lean one way; that nothing is lost is shown by an interval that stays
above minus one point. Forwards are counted, not sampled, and compared as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ripple.analysis.statistics import Paired, paired, pooled, unpack_bits
from ripple.eval.settings import seven_swept
from ripple.files import Line
from ripple.paper import published
from ripple.paper.experiments import EXPERIMENTS, MIRRORS
from ripple.paper.line_index import LineIndex, best_setting

AGREES, DIFFERS = "agrees", "differs"
SAME, OTHER, OPEN = "leans the same way", "leans the other way", "cannot tell"
LEVEL = 0.05
ENOUGH = 100  # items below this many cannot show that nothing is lost
MARGIN = 0.01  # a loss smaller than this share, with 95 % confidence, counts as none


class Judgement(NamedTuple):
    """One statement of the paper, and what our lines say to it."""

    experiment: str
    claim: str
    ours: str
    verdict: str


def verdicts(line: Line) -> list[bool]:
    """Return which items a summary line's decoder solved, first item first."""
    return unpack_bits(line["right"], line["n"])


def pool_lines(rows: Sequence[tuple[Line, Line]]) -> Paired | None:
    """Pool pairs of lines over the same items; None when there are none."""
    pair = pooled(paired(verdicts(a), verdicts(b)) for a, b in rows)
    return pair if pair.n else None


def points(pair: Paired) -> float:
    """Return accuracy b minus accuracy a, in points."""
    return 100 * pair.difference


def described(pair: Paired) -> str:
    """Return a comparison as part of a sentence."""
    return f"{points(pair):+.1f} points over {pair.n} items (p = {pair.p:.2g})"


def higher(pair: Paired) -> str:
    """Judge the claim that b is the more accurate one."""
    if pair.p < LEVEL:
        return AGREES if pair.difference > 0 else DIFFERS
    return OPEN if pair.difference == 0 else SAME if pair.difference > 0 else OTHER


def not_lower(pair: Paired) -> str:
    """Judge the claim that b loses nothing against a: at worst less than the margin."""
    if pair.loses_less_than(MARGIN):
        return AGREES
    return DIFFERS if pair.p < LEVEL and pair.difference < 0 else OPEN


def mean(values: Sequence[float]) -> float:
    """Return the mean, 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def main_tables(index: LineIndex) -> Iterator[tuple[str, str, dict[str, Line]]]:
    """Yield model, task and the best line of each decoder; RPS has one setting, the published one."""
    for model in index.models:
        for task in index.tasks_of(EXPERIMENTS["main"]):
            rows = index.rows(model, task, seven_swept(index.family(model)))
            best = {m: line for m in published.METHODS if (line := best_setting(rows, m)) is not None}
            if "rps" in best and "default" in best:
                yield model, task, best


def paper_tables(index: LineIndex) -> list[dict[str, published.MainRow]]:
    """Return the paper's tables of the corresponding models and tasks; of all its tasks where none does."""
    theirs = []
    for model in index.models:
        tables = published.MAIN[index.counterpart(model)]
        names = [MIRRORS.get(task, task) for task in index.tasks_of(EXPERIMENTS["main"])]
        theirs += [tables[name] for name in names if name in tables] or list(tables.values())
    return theirs
