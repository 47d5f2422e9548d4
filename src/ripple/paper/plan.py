"""From experiments to work: which lines are missing, cut into pieces that processes can share.

A piece holds settings of one model, task, cache and length. The pieces of all experiments are dealt out in
turn, so that each experiment has something to show early, whenever a run is stopped.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ripple.analysis.lines import Line
from ripple.bench.decoders import KEY, Unit
from ripple.bench.grid import paper_rps
from ripple.benchmarks import Benchmark
from ripple.errors import RippleError, unknown
from ripple.eval import find_task
from ripple.paper import oracle
from ripple.paper.book import Book
from ripple.paper.experiments import (
    CODE,
    EXPERIMENTS,
    Experiment,
    Want,
    guess_nfe,
    swept,
    tasks_of,
    timed_wants,
    wants,
)
from ripple.paper.judge import main_tables
from ripple.tasks import TEST_ITEMS, Task

PIECE = 1.5  # a piece holds about this many times the forwards of one-token-per-step decoding


@dataclass(frozen=True)
class Source:
    """Where tasks come from and how their prompts are put."""

    data: Path | None = None
    allow_code: bool = False
    chat: bool = False

    def task(self, name: str) -> Task:
        """Return the task of that name; a benchmark's files are read once."""
        return _find(name, self.data, self.allow_code)


@functools.lru_cache(maxsize=16)
def _find(name: str, data: Path | None, allow_code: bool) -> Task:
    return find_task(name, data, allow_code=allow_code)


@dataclass(frozen=True)
class Request:
    """Everything that `ripple paper` was asked to run."""

    models: dict[str, str]  # name in the lines -> name or path to load
    tasks: tuple[str, ...]
    experiments: tuple[Experiment, ...]
    limit: int | None  # items per task; None = all
    length: int
    device: str
    sweeps: bool
    n_timed: int = 2  # items decoded one by one for the speed columns
    source: Source = Source()

    def timing_key(self, want: Want) -> tuple[object, ...]:
        """Return what names the line of a timed setting."""
        return ("timing", *want.key(min(self.n_timed, self.n_items(want.task))))

    def n_items(self, task: str) -> int:
        """Return how many items of a task are decoded."""
        found = self.source.task(task)
        n_all = len(found) if isinstance(found, Benchmark) else TEST_ITEMS
        return min(self.limit or n_all, n_all)


class Job(NamedTuple):
    """One piece of work for one process."""

    kind: str  # "settings" or "oracle"
    unit: Unit
    name: str  # the model's name in the lines
    source: Source

    @property
    def cost(self) -> float:
        """Return roughly how many forwards of one canvas it takes."""
        unit = self.unit
        if self.kind == "oracle":  # one token per step, then every masked position of some blocks
            return unit.n * 3.0 * unit.length
        return unit.n * sum(guess_nfe(s, unit.length) for s in unit.settings)


def chosen(only: str | None) -> tuple[Experiment, ...]:
    """Return the experiments named, joined by commas, or all of them."""
    names = [name.strip().replace("-", "_") for name in only.split(",")] if only else list(EXPERIMENTS)
    for name in names:
        if name not in EXPERIMENTS:
            raise unknown("experiment", name, EXPERIMENTS)
    return tuple(EXPERIMENTS[name] for name in EXPERIMENTS if name in names)


def line_key(line: Line) -> tuple[object, ...]:
    """Return what names a line: that of its kind, and the setting's."""
    return (line.get("experiment"), *(line.get(name) for name in KEY))


def is_whole(line: Line) -> bool:
    """Say whether a setting's line carries what the figures need of it; one of another bench may not."""
    rps = paper_rps(line["model"]).describe()
    if line["family"] in CODE and line["method"] in ("lopa", "rps") and "source_lines" not in line:
        return False
    return line["setting"] != rps or line["cache"] != "none" or "bound" in line


def all_wants(request: Request) -> Iterator[tuple[Experiment, Want]]:
    """Yield each wanted setting line once, with the first experiment that wants it."""
    seen = set()
    for experiment in request.experiments:
        for want in wants(experiment, list(request.models), request.tasks, request.length, request.sweeps):
            if (key := want.key(0)) not in seen:
                seen.add(key)
                yield experiment, want


def jobs(request: Request, lines: Iterable[Line]) -> list[Job]:
    """Return the pieces that have no line yet, those of all experiments in turn."""
    done = {line_key(line) for line in lines}
    n_of = {task: request.n_items(task) for task in request.tasks}
    groups: dict[tuple[str, str, str, str, int], list[Want]] = {}
    for experiment, want in all_wants(request):
        if (None, *want.key(n_of[want.task])) not in done:
            place = (experiment.name, want.model, want.task, want.cache, want.length)
            groups.setdefault(place, []).append(want)
    by_experiment: dict[str, list[tuple[int, Job]]] = {}
    for (name, *_), mine in groups.items():
        for i, piece in enumerate(_pieces(mine)):
            first = piece[0]
            unit = Unit(
                request.models[first.model], first.task, first.cache, tuple(w.setting for w in piece),
                n_of[first.task], first.length, request.device,
            )  # fmt: skip
            job = Job("settings", unit, first.model, request.source)
            by_experiment.setdefault(name, []).append((i, job))
    by_experiment["oracle"] = [(0, job) for job in _oracle_jobs(request, done, n_of)]
    return _in_turn(by_experiment)


def _in_turn(by_experiment: dict[str, list[tuple[int, Job]]]) -> list[Job]:
    """Let all experiments advance alike: first pieces first, and of those the dearest first."""
    dealt = []
    for numbered in by_experiment.values():
        mine = sorted(numbered, key=lambda pair: (pair[0], -pair[1].cost))
        dealt += [((i + 1) / len(mine), job) for i, (_, job) in enumerate(mine)]
    return [job for _, job in sorted(dealt, key=lambda pair: pair[0])]


def _pieces(mine: Sequence[Want]) -> Iterator[list[Want]]:
    piece: list[Want] = []
    spent = 0.0
    for want in mine:
        cost = guess_nfe(want.setting, want.length) / want.length
        if piece and spent + cost > PIECE:
            yield piece
            piece, spent = [], 0.0
        piece.append(want)
        spent += cost
    yield piece


def _oracle_jobs(request: Request, done: set[tuple[object, ...]], n_of: dict[str, int]) -> Iterator[Job]:
    for experiment in request.experiments:
        if experiment.name != "oracle":
            continue
        for model in request.models:
            for task in tasks_of(experiment, request.tasks):
                n = min(n_of[task], oracle.N_ITEMS)
                if ("oracle", model, task, "none", "oracle", n, request.length) not in done:
                    unit = Unit(request.models[model], task, "none", (), n, request.length, request.device)
                    yield Job("oracle", unit, model, request.source)


def timings(request: Request, lines: Iterable[Line]) -> list[Want]:
    """Return the settings that have not been timed yet."""
    done = {line_key(line) for line in lines}
    missing: dict[object, Want] = {}
    for experiment in request.experiments if request.n_timed else ():
        for want in timed_wants(experiment, list(request.models), request.tasks, request.length):
            if (key := request.timing_key(want)) not in done:
                missing[key] = want
    return list(missing.values())


def best_untimed(request: Request, lines: Sequence[Line]) -> Iterator[Want]:
    """Yield the settings that a sweep of the main table chose and that have not been timed yet."""
    if not request.n_timed or "main" not in {experiment.name for experiment in request.experiments}:
        return
    book, done = Book(lines), {line_key(line) for line in lines}
    for model, task, best in main_tables(book):
        known = {setting.describe(): setting for setting in swept(model)}
        for line in best.values():
            want = Want(model, task, "none", request.length, known[line["setting"]])
            is_asked = model in request.models and task in request.tasks and line["length"] == request.length
            if is_asked and request.timing_key(want) not in done:
                yield want


def describe(request: Request, lines: Sequence[Line]) -> str:
    """Return the plan as text: what is missing, and roughly how many forwards it takes."""
    todo, timed = jobs(request, lines), timings(request, lines)
    rows = ["experiment   lines wanted   of them first wanted here"]
    first: dict[str, int] = {}
    for experiment, _ in all_wants(request):
        first[experiment.name] = first.get(experiment.name, 0) + 1
    for experiment in request.experiments:
        models = list(request.models)
        n = sum(1 for _ in wants(experiment, models, request.tasks, request.length, request.sweeps))
        rows.append(f"{experiment.name:<12} {n:>12} {first.get(experiment.name, 0):>14}")
    settings = [job for job in todo if job.kind == "settings"]
    n_lines = sum(len(job.unit.settings) for job in settings)
    n_timed = sum(guess_nfe(want.setting, want.length) for want in timed) * request.n_timed
    rows += [
        "",
        f"To do: {n_lines} setting lines in {len(settings)} pieces, {len(todo) - len(settings)} oracle "
        f"analyses, {len(timed)} timings of {request.n_timed} single requests.",
        f"About {sum(job.cost for job in settings):,.0f} forwards of one canvas in batches, and "
        f"{n_timed:,.0f} one by one; limit {request.limit or 'all'}, base length {request.length}.",
    ]
    return "\n".join(rows)


def check(request: Request) -> None:
    """Refuse early what would fail late."""
    if request.limit is not None and request.limit < 1:
        raise RippleError(f"--limit must be at least 1 item, got {request.limit}.")
    if request.n_timed < 0:
        raise RippleError(f"--timed must be 0 or more requests, got {request.n_timed}.")
    if request.length < 64 or request.length % 2:
        raise RippleError(f"--length must be an even number of at least 64, got {request.length}.")
    for task in request.tasks:
        request.source.task(task)
