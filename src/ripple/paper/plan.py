"""From experiments to work: which lines are missing, cut into pieces that processes can share.

A piece holds settings of one model, task, cache and length. The pieces of all experiments are dealt out in
turn, so that each experiment has something to show early, whenever a run is stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ripple.errors import RippleError, unknown
from ripple.eval.facts import ModelChoice
from ripple.eval.settings import guess_nfe, published_rps, seven_swept
from ripple.eval.sweep import Piece, TaskSource, Want, setting_key
from ripple.files import Line
from ripple.paper import oracle
from ripple.paper.experiments import CODE, EXPERIMENTS, Experiment, tasks_of, timed_wants, wants
from ripple.paper.judge import main_tables
from ripple.paper.line_index import LineIndex

PIECE = 1.5  # a piece holds about this many times the forwards of one-token-per-step decoding
LineKey = tuple[object, ...]


@dataclass(frozen=True)
class ReportOptions:
    """Everything that `ripple paper` was asked to run."""

    models: tuple[ModelChoice, ...]
    tasks: tuple[str, ...]
    experiments: tuple[Experiment, ...]
    limit: int | None  # items per task; None = all
    length: int
    device: str
    sweeps: bool
    n_timed: int = 2  # items decoded one by one for the speed columns
    source: TaskSource = field(default_factory=TaskSource)

    def n_items(self, task: str) -> int:
        """Return how many items of a task are decoded."""
        n_all = self.source.task(task).size
        return min(self.limit or n_all, n_all)

    def key(self, want: Want) -> LineKey:
        """Return what names a summary line."""
        return ("summary", *want.key(self.n_items(want.task), self.source.chat))

    def timing_key(self, want: Want) -> LineKey:
        """Return what names the line of a timed setting."""
        return ("timing", *want.key(min(self.n_timed, self.n_items(want.task)), self.source.chat))


class OraclePiece(NamedTuple):
    """The oracle analysis of one model and task: one process's piece of work."""

    model: ModelChoice
    task: str
    length: int
    n: int
    source: TaskSource
    device: str

    @property
    def cost(self) -> float:
        """Roughly how many forwards it takes: one token per step, then what-ifs in some of the blocks."""
        return self.n * 3.0 * self.length

    @property
    def key(self) -> LineKey:
        """What names its line."""
        return oracle_key(self.model.name, self.task, self.source.chat, self.length, self.n)


def cost(piece: Piece | OraclePiece) -> float:
    """Return roughly how many forwards of one canvas a piece takes."""
    if isinstance(piece, OraclePiece):
        return piece.cost
    return sum(piece.cost(setting) for setting in piece.settings)


def chosen(only: str | None) -> tuple[Experiment, ...]:
    """Return the experiments named, joined by commas, or all of them."""
    names = [name.strip().replace("-", "_") for name in only.split(",")] if only else list(EXPERIMENTS)
    for name in names:
        if name not in EXPERIMENTS:
            raise unknown("experiment", name, EXPERIMENTS)
    return tuple(EXPERIMENTS[name] for name in EXPERIMENTS if name in names)


def line_key(line: Line) -> LineKey:
    """Return what names a line: its kind, and where and how it was measured."""
    if line["kind"] == "summary":
        return ("summary", *setting_key(line))
    names = ("analysis", "model", "task", "chat", "cache", "setting", "length", "n")
    return tuple(line.get(name) for name in names)


def oracle_key(model: str, task: str, chat: bool, length: int, n: int) -> LineKey:
    """Return what names the line of an oracle analysis."""
    return "oracle", model, task, chat, "none", "oracle", length, n


def is_whole(line: Line) -> bool:
    """Say whether a summary line carries what the figures need of it; a converted one may not."""
    rps = published_rps(line["model_family"]).describe()
    if line["task"] in CODE and line["decoder"] in ("lopa", "rps") and "source_lines" not in line:
        return False
    return line["setting"] != rps or line["cache"] != "none" or "bound" in line


def all_wants(options: ReportOptions) -> Iterator[tuple[Experiment, Want]]:
    """Yield each wanted summary line once, with the first experiment that wants it."""
    seen = set()
    for experiment in options.experiments:
        for want in wants(experiment, options.models, options.tasks, options.length, options.sweeps):
            if (key := want.key(0)) not in seen:
                seen.add(key)
                yield experiment, want


def pieces(options: ReportOptions, lines: Iterable[Line]) -> list[Piece | OraclePiece]:
    """Return the pieces that have no line yet, those of all experiments in turn."""
    done = {line_key(line) for line in lines if line["kind"] in ("summary", "analysis")}
    groups: dict[tuple[str, str, str, str, int], list[Want]] = {}
    for experiment, want in all_wants(options):
        if options.key(want) not in done:
            place = (experiment.name, want.model.name, want.task, want.cache, want.length)
            groups.setdefault(place, []).append(want)
    by_experiment: dict[str, list[tuple[int, Piece | OraclePiece]]] = {}
    for (name, *_), mine in groups.items():
        first, n = mine[0], options.n_items(mine[0].task)
        for i, part in enumerate(_parts(mine)):
            settings = tuple(want.setting for want in part)
            piece = Piece(
                first.model, first.task, first.cache, first.length, n, settings, options.source,
                options.device,
            )  # fmt: skip
            by_experiment.setdefault(name, []).append((i, piece))
    by_experiment["oracle"] = [(0, piece) for piece in _oracle_pieces(options) if piece.key not in done]
    return _in_turn(by_experiment)


def _in_turn(
    by_experiment: dict[str, list[tuple[int, Piece | OraclePiece]]],
) -> list[Piece | OraclePiece]:
    """Let all experiments advance alike: first pieces first, and of those the dearest first."""
    dealt = []
    for numbered in by_experiment.values():
        mine = sorted(numbered, key=lambda pair: (pair[0], -cost(pair[1])))
        dealt += [((i + 1) / len(mine), piece) for i, (_, piece) in enumerate(mine)]
    return [piece for _, piece in sorted(dealt, key=lambda pair: pair[0])]


def _parts(mine: Sequence[Want]) -> Iterator[list[Want]]:
    part: list[Want] = []
    spent = 0.0
    for want in mine:
        share = guess_nfe(want.setting, want.length) / want.length
        if part and spent + share > PIECE:
            yield part
            part, spent = [], 0.0
        part.append(want)
        spent += share
    yield part


def _oracle_pieces(options: ReportOptions) -> Iterator[OraclePiece]:
    for experiment in options.experiments:
        if experiment.name == "oracle":
            for model in options.models:
                for task in tasks_of(experiment, options.tasks):
                    n = min(options.n_items(task), oracle.N_ITEMS)
                    yield OraclePiece(model, task, options.length, n, options.source, options.device)


def timings(options: ReportOptions, lines: Iterable[Line]) -> list[Want]:
    """Return the settings that have not been timed yet."""
    done = {line_key(line) for line in lines if line["kind"] == "analysis"}
    missing: dict[object, Want] = {}
    for experiment in options.experiments if options.n_timed else ():
        for want in timed_wants(experiment, options.models, options.tasks, options.length):
            if (key := options.timing_key(want)) not in done:
                missing[key] = want
    return list(missing.values())


def best_untimed(options: ReportOptions, lines: Sequence[Line]) -> Iterator[Want]:
    """Yield the settings that a sweep of the main table chose and that have not been timed yet."""
    if not options.n_timed or "main" not in {experiment.name for experiment in options.experiments}:
        return
    index, done = LineIndex(lines), {line_key(line) for line in lines if line["kind"] == "analysis"}
    models = {model.name: model for model in options.models}
    for name, task, best in main_tables(index):
        if name not in models or task not in options.tasks:
            continue
        known = {setting.describe(): setting for setting in seven_swept(models[name].family)}
        for line in best.values():
            want = Want(models[name], task, "none", options.length, known[line["setting"]])
            if line["length"] == options.length and options.timing_key(want) not in done:
                yield want


def describe(options: ReportOptions, lines: Sequence[Line]) -> str:
    """Return the plan as text: what is missing, and roughly how many forwards it takes."""
    todo, timed = pieces(options, lines), timings(options, lines)
    rows = ["experiment   lines wanted   of them first wanted here"]
    first: dict[str, int] = {}
    for experiment, _ in all_wants(options):
        first[experiment.name] = first.get(experiment.name, 0) + 1
    for experiment in options.experiments:
        n = sum(1 for _ in wants(experiment, options.models, options.tasks, options.length, options.sweeps))
        rows.append(f"{experiment.name:<12} {n:>12} {first.get(experiment.name, 0):>14}")
    sweeps = [piece for piece in todo if isinstance(piece, Piece)]
    n_lines = sum(len(piece.settings) for piece in sweeps)
    n_timed = sum(guess_nfe(want.setting, want.length) for want in timed) * options.n_timed
    rows += [
        "",
        f"To do: {n_lines} setting lines in {len(sweeps)} pieces, {len(todo) - len(sweeps)} oracle "
        f"analyses, {len(timed)} timings of {options.n_timed} single requests.",
        f"About {sum(map(cost, sweeps)):,.0f} forwards of one canvas in batches, and "
        f"{n_timed:,.0f} one by one; limit {options.limit or 'all'}, base length {options.length}.",
    ]
    return "\n".join(rows)


def check(options: ReportOptions) -> None:
    """Refuse early what would fail late."""
    if options.limit is not None and options.limit < 1:
        raise RippleError(f"--limit must be at least 1 item, got {options.limit}.")
    if options.n_timed < 0:
        raise RippleError(f"--timed must be 0 or more requests, got {options.n_timed}.")
    if options.length < 64 or options.length % 2:
        raise RippleError(f"--length must be an even number of at least 64, got {options.length}.")
    for model in options.models:
        if model.attends_by_block:
            raise RippleError(
                f"The paper's experiments are about models that see the whole canvas; {model.name} attends "
                "block by block and is measured by `ripple bench decoders`."
            )
    for task in options.tasks:
        options.source.check(task, options.models)
