"""Many settings on many tasks: what is missing in a file is run piece by piece, one summary line per setting.

A piece is one process's work: settings of one model, task, cache and length. A killed sweep resumes with the
settings that have no line yet.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from ripple.decoders import Decoder
from ripple.engine.engine import Engine
from ripple.engine.load import load
from ripple.errors import RippleError, WorkFailed
from ripple.eval.decoding import decode
from ripple.eval.facts import ModelChoice, Variant, setting_label, weights_hash
from ripple.eval.runner import Evaluation, Scorer
from ripple.eval.settings import guess_nfe
from ripple.eval.summary import packed
from ripple.eval.workers import Worked, run_all
from ripple.files import Line, append_line
from ripple.models.hub import embedded_models
from ripple.models.load import torch_device
from ripple.options import Options
from ripple.pool.cluster import Workers
from ripple.progress import Progress
from ripple.tasks import Task, check_code_allowed, find_task

BATCH = {"cpu": 8, "cuda": 512}  # requests per tick
N_TRACED = 100  # items of which RPS's searches are traced
SettingKey = tuple[str, str, bool, str, str, int, int]
T = TypeVar("T")


@dataclass(frozen=True)
class TaskSource:
    """Where tasks come from and how their prompts are put."""

    data: Path | None = None  # a published benchmark's files
    allow_code: bool = False
    chat: bool = False

    def task(self, name: str) -> Task:
        """Return the task of that name; a benchmark's files are read once."""
        return _find(name, self.data, self.allow_code)

    def check(self, task: str, models: Iterable[ModelChoice]) -> None:
        """Refuse an unknown task, or one that would run a model's code without permission."""
        for model in models:
            check_code_allowed(self.task(task), model.given, self.allow_code, embedded_models())


@functools.lru_cache(maxsize=16)
def _find(name: str, data: Path | None, allow_code: bool) -> Task:
    return find_task(name, data, allow_code=allow_code)


class Want(NamedTuple):
    """One summary line that is wanted."""

    model: ModelChoice
    task: str
    cache: str
    length: int
    setting: Decoder
    variant: Variant = Variant()

    def key(self, n: int, chat: bool = False) -> SettingKey:
        """Return what names the line, given how many items are decoded."""
        label = setting_label(self.setting, self.variant)
        return self.model.name, self.task, chat, self.cache, label, self.length, n


def setting_key(line: Line) -> SettingKey:
    """Return what names a summary line among those of a file."""
    place = line["model"], line["task"], line["chat"]
    return (*place, line["cache"], line["setting"], line["length"], line["n"])


class Piece(NamedTuple):
    """One process's piece of work."""

    model: ModelChoice
    task: str
    cache: str
    length: int
    n: int
    settings: tuple[Decoder, ...]
    source: TaskSource
    device: str
    dtype: str = "auto"
    variant: Variant = Variant()

    def cost(self, setting: Decoder) -> float:
        """Return roughly how many forwards of one canvas a setting takes."""
        return self.n * guess_nfe(setting, self.length)


def summaries(piece: Piece) -> Iterator[Worked]:
    """Run a piece's settings and yield the line of each, or why it could not be finished."""
    engine = open_engine(piece.model.given, piece.device, piece.dtype, piece.model.block_size)
    task = piece.source.task(piece.task)
    items, scorer = task.test_items(piece.n), _scorer(piece.source, piece.task)
    for i, setting in enumerate(piece.settings):
        options = Options(setting, piece.length, cache=piece.cache, **piece.variant._asdict())
        run = Evaluation(engine, task, options, piece.model.name, piece.source.chat)
        try:
            if i == 0:
                run.warm_up(items[0])
            rows = {row["item"]: row for row in run.measured(items, scorer, at_once=True)}
            traced = []
            if setting.name == "rps":  # traced apart from the timed run
                prompts = [run.prompt(item, trace=True) for item in items[:N_TRACED]]
                traced = [result for _, result in sorted(decode(engine, prompts), key=lambda pair: pair[0])]
            yield packed(run, [rows[item.id] for item in items], traced)
        except RippleError as error:
            where = f"{piece.model.name} on {piece.task}, cache {piece.cache}, {setting.describe()}"
            yield RippleError(f"{where}: {error}")


@functools.lru_cache(maxsize=2)
def open_engine(model: str, device: str, dtype: str = "auto", block_size: int | None = None) -> Engine:
    """Load a model, by default as users get it: fp32 on a CPU, bf16 on a GPU. The last two stay loaded."""
    batch = BATCH.get(torch_device(device).type, BATCH["cpu"])
    return load(model, device=device, dtype=dtype, max_batch=batch, block_size=block_size)


@functools.lru_cache(maxsize=16)
def _scorer(source: TaskSource, task: str) -> Scorer:
    """Return this process's scorer of a task: decoders often agree."""
    return Scorer(source.task(task))


def fill(
    out: Path, pieces: Sequence[T], work: Callable[[T], Iterator[Worked]], workers: int | Workers,
    cost: Callable[[Line], float], progress: Progress,
) -> tuple[list[Line], list[RippleError]]:  # fmt: skip
    """Do the work of all pieces and append each line as it comes; return the lines and what failed."""
    lines: list[Line] = []
    failures: list[RippleError] = []
    for worked in run_all(work, pieces, workers):
        if isinstance(worked, RippleError):
            failures.append(worked)
            progress.say(f"ripple: {worked}")
        else:
            append_line(out, worked)
            lines.append(worked)
            progress.update(cost(worked), told(worked))
    return lines, failures


def told(line: Line) -> str:
    """Return a line in a few words."""
    words = [str(line.get(name, "")) for name in ("analysis", "model", "task", "cache", "setting")]
    numbers = [f"acc {100 * line['accuracy']:.1f}"] if "accuracy" in line else []
    numbers += [f"NFE {line['nfe']:.1f}"] if "nfe" in line else []
    return ", ".join([" ".join(word for word in words if word), *numbers])


def raise_failures(failures: Sequence[RippleError], out: Path) -> None:
    """Raise what failed, after everything else has been written."""
    if failures:
        more = f" ({len(failures) - 1} more failed too)" if len(failures) > 1 else ""
        raise WorkFailed(f"{str(failures[0]).rstrip('.')}{more}; {out} has what was finished.")


def check_weights(out: Path, lines: Iterable[Line], models: Iterable[ModelChoice]) -> None:
    """Refuse to add to the lines of a model whose weights have changed since."""
    known = {line["model"]: line["weights"] for line in lines if line.get("weights")}
    for model in models:
        before = known.get(model.name)
        now = weights_hash(model.folder)
        if before is not None and now is not None and before != now:
            raise RippleError(
                f"{out} was made with other weights of {model.name}; name another file with --out."
            )
