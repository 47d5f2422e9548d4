"""How a statement of the paper is judged by result lines: the rules, and nothing about any statement.

Accuracy is weighed by an exact McNemar test over all tables a statement speaks of: `agrees` and `differs`
need p < 0.05, otherwise the lines only lean one way; that nothing is lost is shown by an interval that stays
above minus one point. Forwards are counted, not sampled, and compared as
they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ripple.analysis import published
from ripple.analysis.lines import Line
from ripple.analysis.paired import mcnemar
from ripple.analysis.statistics import Z_95
from ripple.paper.book import Book, best_setting
from ripple.paper.experiments import EXPERIMENTS, MIRRORS, swept
from ripple.paper.lengths import verdicts

AGREES, DIFFERS = "agrees", "differs"
SAME, OTHER, OPEN = "leans the same way", "leans the other way", "cannot tell"
LEVEL = 0.05
ENOUGH = 100  # items below this many cannot show that nothing is lost
MARGIN = 1.0  # points: a loss smaller than this, with 95 % confidence, counts as none


class Finding(NamedTuple):
    """One statement of the paper, and what our lines say to it."""

    experiment: str
    claim: str
    ours: str
    verdict: str


class Paired(NamedTuple):
    """Two decoders on the same items, pooled over tables."""

    n: int
    only_a: int
    only_b: int

    @property
    def points(self) -> float:
        """Return accuracy b minus accuracy a, in points."""
        return 100 * (self.only_b - self.only_a) / self.n

    @property
    def p(self) -> float:
        """Return the exact McNemar p-value."""
        return mcnemar(self.only_a, self.only_b)

    @property
    def lowest(self) -> float:
        """Return the lower end of the difference's 95 % interval, in points."""
        moved = self.only_a + self.only_b
        spread = math.sqrt(max(0.0, moved - (self.only_b - self.only_a) ** 2 / self.n)) / self.n
        return self.points - 100 * Z_95 * spread

    def __str__(self) -> str:
        return f"{self.points:+.1f} points over {self.n} items (p = {self.p:.2g})"


def pair_up(rows: Sequence[tuple[Line, Line]]) -> Paired | None:
    """Pool pairs of lines over the same items; None when there are none."""
    n = only_a = only_b = 0
    for a, b in rows:
        both = list(zip(verdicts(a), verdicts(b), strict=True))
        n += len(both)
        only_a += sum(x and not y for x, y in both)
        only_b += sum(y and not x for x, y in both)
    return Paired(n, only_a, only_b) if n else None


def higher(found: Paired) -> str:
    """Judge the claim that b is the more accurate one."""
    if found.p < LEVEL:
        return AGREES if found.points > 0 else DIFFERS
    return OPEN if found.points == 0 else SAME if found.points > 0 else OTHER


def not_lower(found: Paired) -> str:
    """Judge the claim that b loses nothing against a: at worst less than the margin."""
    if found.lowest > -MARGIN:
        return AGREES
    return DIFFERS if found.p < LEVEL and found.points < 0 else OPEN


def mean(values: Sequence[float]) -> float:
    """Return the mean, 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def main_tables(book: Book) -> Iterator[tuple[str, str, dict[str, Line]]]:
    """Yield model, task and the best line of each decoder; RPS has one setting, the published one."""
    for model in book.models:
        for task in book.tasks_of(EXPERIMENTS["main"]):
            rows = book.rows(model, task, swept(model))
            best = {m: line for m in published.METHODS if (line := best_setting(rows, m)) is not None}
            if "rps" in best and "default" in best:
                yield model, task, best


def paper_tables(book: Book) -> list[dict[str, published.Row]]:
    """Return the paper's tables of the corresponding models and tasks; of all its tasks where none does."""
    found = []
    for model in book.models:
        tables = published.MAIN[published.counterpart(model)]
        names = [MIRRORS.get(task, task) for task in book.tasks_of(EXPERIMENTS["main"])]
        found += [tables[name] for name in names if name in tables] or list(tables.values())
    return found
