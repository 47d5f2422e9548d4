"""The lines of a report folder, looked up by what a table or figure needs.

Within one table all lines are over the same number of items: the one at which most of its settings are
there, the larger one on ties. Runs at several limits may share a folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

from ripple.decoders import RPS, Decoder
from ripple.eval.settings import published_rps
from ripple.files import Line
from ripple.paper import published
from ripple.paper.experiments import EXPERIMENTS, MIRRORS, Experiment, tasks_of


class LineIndex:
    """Result lines by kind; a later line of the same name replaces an earlier one."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines = [line for line in lines if line["kind"] in ("summary", "analysis")]
        self.settings: dict[tuple[str, str, str, str, int, int], Line] = {}
        self.analyses: dict[tuple[str, str, str], dict[tuple[str, str], Line]] = {}
        for line in self.lines:
            if line["kind"] == "summary":
                place = (line["model"], line["task"], line["cache"])
                self.settings[(*place, line["setting"], line["length"], line["n"])] = line
        for line in self.lines:
            if line["kind"] == "analysis" and line["length"] == self.length:
                key = (line["analysis"], line["model"], line["task"])
                mine = self.analyses.setdefault(key, {})
                old = mine.get((line["cache"], line["setting"]))
                if old is None or old["n"] <= line["n"]:
                    mine[line["cache"], line["setting"]] = line

    @cached_property
    def models(self) -> list[str]:
        """Return the models, in the order in which they were run."""
        return list(dict.fromkeys(line["model"] for line in self.lines))

    @cached_property
    def _families(self) -> dict[str, str]:
        return {line["model"]: line["model_family"] for line in self.lines}

    def family(self, model: str) -> str:
        """Return a model's family."""
        return self._families[model]

    def rps(self, model: str) -> RPS:
        """Return RPS with the paper's hyper-parameters for a model."""
        return published_rps(self.family(model))

    def counterpart(self, model: str) -> str:
        """Return the paper's model that one of ours is compared with."""
        return published.counterpart(model, self.family(model))

    @cached_property
    def tasks(self) -> list[str]:
        """Return the tasks, in the paper's order of benchmarks."""
        tasks = dict.fromkeys(line["task"] for line in self.lines)
        return [t for t in MIRRORS if t in tasks] + [t for t in tasks if t not in MIRRORS]

    @cached_property
    def length(self) -> int:
        """Return the base length: the most frequent one."""
        counts = Counter(line["length"] for line in self.lines)
        return max(counts, key=lambda length: counts[length]) if counts else 0

    def tasks_of(self, experiment: Experiment) -> list[str]:
        """Return the tasks of an experiment that there are lines of."""
        return tasks_of(experiment, self.tasks)

    def rows(
        self,
        model: str,
        task: str,
        settings: Sequence[Decoder],
        cache: str = "none",
        length: int | None = None,
    ) -> list[Line]:
        """Return the lines of these settings that are there, all over the same items."""
        return self.across(model, task, settings, [(cache, self.length if length is None else length)])[0]

    def of_experiment(self, name: str, model: str, task: str) -> list[Line]:
        """Return the lines of an experiment's settings that are there, all over the same items."""
        return self.rows(model, task, EXPERIMENTS[name].settings(self.family(model)))

    def across(
        self, model: str, task: str, settings: Sequence[Decoder], places: Sequence[tuple[str, int]]
    ) -> list[list[Line]]:
        """Return the lines of these settings at each (cache, length), all over the same items."""
        names = [setting.describe() for setting in settings]
        wanted = [(model, task, cache, name, at) for cache, at in places for name in names]
        counts = Counter(n for *key, n in self.settings if tuple(key) in wanted)
        n = max(counts, key=lambda n: (counts[n], n)) if counts else 0
        every = [
            [self.settings.get((model, task, cache, name, at, n)) for name in names] for cache, at in places
        ]
        return [[line for line in lines if line is not None] for lines in every]

    def analysis(self, name: str, model: str, task: str, cache: str = "none") -> list[Line]:
        """Return the lines of an analysis."""
        mine = self.analyses.get((name, model, task), {})
        return [line for (where, _), line in mine.items() if where == cache]

    def timing(self, model: str, task: str, setting: str, cache: str = "none") -> Line | None:
        """Return the timing of one setting."""
        return self.analyses.get(("timing", model, task), {}).get((cache, setting))

    def tps(self, model: str, task: str, setting: str, cache: str = "none") -> float | None:
        """Return tokens per second of one setting, decoding one request at a time."""
        line = self.timing(model, task, setting, cache)
        return line["tps"] if line else None


def best_setting(rows: Sequence[Line], decoder: str) -> Line | None:
    """Return a decoder's most accurate line, the one with fewest forwards on ties."""
    mine = [row for row in rows if row["decoder"] == decoder]
    return max(mine, key=lambda row: (row["accuracy"], -row["nfe"])) if mine else None
