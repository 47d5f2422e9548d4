"""Which commits cost a decoder the items that one token per step solves?

Run: `ripple bench blame`. An item is lost when one-token-per-step decoding solves it and the
decoder (RPS, glide) does not. Its commits are replayed up to some point and the rest is decoded one token per
step; the first commit after which the item comes out wrong, found by bisection, is the guilty one. That is a
test, not a reading of tokens: where several phrasings are right, a commit is not wrong because it differs
from another answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ripple.analysis.blame import blame_figure, blame_table
from ripple.analysis.plots import draw_beside
from ripple.canvas import Canvas
from ripple.decoders import Decoder, Default, family_decoder
from ripple.decoders.base import Conversation
from ripple.engine.engine import Engine
from ripple.engine.result import Result
from ripple.errors import RippleError, unknown
from ripple.eval.facts import ModelChoice, choose_model
from ripple.eval.lines import make_line, read_results
from ripple.eval.sweep import TaskSource, open_engine
from ripple.fields import param, split_specs
from ripple.files import Line, append_line, locked, truncate_partial_line
from ripple.measurement import Measurement, listed
from ripple.models.hub import embedded_models
from ripple.options import Options
from ripple.progress import Progress
from ripple.tasks import TASKS, Item, Task
from ripple.trace import Event

BIN_NATS = 0.25  # width of the entropy bins of pivots


class Commit(NamedTuple):
    """One commit event of a trace, with what was known before it."""

    pos: tuple[int, ...]
    token: tuple[int, ...]
    p: float  # of its least sure token
    cause: str
    entropy: float  # nats, of its least certain position when a forward last read it
    rank: int  # of the token there: 1 is the top-1; standard and fallback commits always are

    @property
    def group(self) -> str:
        """The cause; pivots also by rank."""
        return (
            self.cause if self.cause != "pivot" else f"pivot, rank {min(self.rank, 3)}{'+' * (self.rank > 2)}"
        )


@dataclass(frozen=True)
class Resumed(Decoder):
    """Start from tokens that were committed elsewhere and go on one token per step."""

    name = "resumed"
    paper = "a measurement of Ripple's own"

    pos: tuple[int, ...] = ()  # absolute
    token: tuple[int, ...] = ()

    def decode(self, canvas: Canvas) -> Conversation:
        """Write the tokens, then fill what is left."""
        p = np.ones(len(self.pos), np.float32)
        canvas.commit(np.array(self.pos, np.int64), np.array(self.token, np.int64), p, "replayed")
        yield from Default().decode(canvas)


@dataclass(frozen=True)
class Blame(Measurement):
    """Which commits of a decoder cost an answer that one token per step finds."""

    name = "blame"

    out: Path | None = param(None, "result lines; none is results/blame-cpu.jsonl; a run is resumed")
    models: str = param(
        "", "embedded names, folders or hub ids, joined by commas; empty is both embedded ones"
    )
    tasks: str = param("functions,programs", "task families, joined by commas")
    decoders: str = param("rps,glide", "names, presets or name:field=value, joined by commas")
    items: int = param(16, "test items per task", within="[1, inf)")
    length: int = param(256, "response positions", within="[1, inf)")
    device: str = param("cpu", "cpu, cuda, cuda:N or auto")
    allow_code: bool = param(False, "run code that a model wrote, in the sandbox")

    def run(self) -> dict[str, Any]:
        """Add the lines that `out` lacks, draw its table and figure, and return the counts of each line."""
        models = [choose_model(name) for name in listed(self.models) or embedded_models()]
        source = TaskSource(allow_code=self.allow_code)
        if not listed(self.tasks):
            raise RippleError("Name at least one task.")
        for name in listed(self.tasks):
            if name not in TASKS:
                raise unknown("task", name, TASKS)
            source.check(name, models)
        out = self.out or Path("results") / "blame-cpu.jsonl"
        with locked(out):
            lines = [line for line in read_results(out) if line.get("analysis") == self.name]
            truncate_partial_line(out)
            names = ("model", "task", "setting", "n", "length")
            done = {tuple(line[name] for name in names) for line in lines}
            todo = [
                (model, TASKS[task], setting)
                for model in models
                for task in listed(self.tasks)
                for setting in (family_decoder(spec, model.family) for spec in split_specs(self.decoders))
                if (model.name, task, setting.describe(), self.items, self.length) not in done
            ]
            with Progress("blame", len(todo), is_quiet=not todo) as progress:
                for model, task, setting in todo:
                    line = self._line(model, task, setting)
                    append_line(out, line)
                    lines.append(line)
                    told = f"{model.name}, {task.name}, {line['setting']}: {line['lost']} of {line['n']} lost"
                    progress.update(note=told)
        shown = ("n", "solved", "lost")
        rows = {
            f"{line['model']} {line['task']} {line['setting']}": {name: line[name] for name in shown}
            for line in lines
        }
        return {"bench": self.name, **draw(out, lines), "lines": rows}

    def _line(self, model: ModelChoice, task: Task, setting: Decoder) -> Line:
        engine = open_engine(model.given, self.device)
        place = {"analysis": self.name, "model": model.name, "model_family": model.family}
        return make_line("analysis", place | blame(engine, task, setting, self.items, self.length))


def draw(out: Path, lines: Sequence[Line]) -> dict[str, str]:
    """Write the table and the figure of a result file beside it, and name the files."""
    return draw_beside(out, blame_table(lines), lambda figure: blame_figure(lines, figure))


def blame(engine: Engine, task: Task, decoder: Decoder, n: int, length: int) -> Line:
    """Decode n items and find the guilty commit of each one lost."""
    items = task.test_items(n)
    options = Options(decoder, length, trace=True)
    results = engine.generate([item.prompt for item in items], options)
    right = task.score_many(items, [result.text for result in results])
    wrong = [i for i in range(n) if not right[i]]
    alone = finish(engine, task, [items[i] for i in wrong], [Default()] * len(wrong), length)
    lost = [i for i, is_solved in zip(wrong, alone, strict=True) if is_solved]
    histories = [commits_of(result.trace or []) for result in results]
    at = bisect(engine, task, [items[i] for i in lost], [histories[i] for i in lost], length)
    guilty = [histories[i][k] for i, k in zip(lost, at, strict=True)]
    every = [commit for history in histories for commit in history]
    return {
        "task": task.name, "n": n, "length": length, "setting": decoder.describe(), "solved": sum(right),
        "lost": len(lost),
        "commits": dict(Counter(commit.group for commit in every)),
        "guilty": dict(Counter(commit.group for commit in guilty)),
        "bin_nats": BIN_NATS, "pivots_by_entropy": _bins(every), "guilty_by_entropy": _bins(guilty),
        "cases": [
            _case(items[i], results[i], histories[i], k) for i, k in zip(lost, at, strict=True)
        ],
    }  # fmt: skip


def commits_of(trace: Sequence[Event]) -> list[Commit]:
    """Return the commits of a trace in order; what no forward has read (end fill) counts as certain."""
    entropy: dict[int, float] = {}
    search: dict[str, Any] = {}
    history = []
    for event in trace:
        data = event.data
        if event.kind == "forward":
            entropy.update(zip(data["pos"], data["entropy"], strict=True))
        elif event.kind == "search":
            search = data
        elif event.kind == "commit" and data["pos"]:
            is_pivot = data["cause"] == "pivot"
            read = [entropy.get(pos, 0.0) for pos in data["pos"]]
            before = search["entropy_before"] if is_pivot else max(read)
            rank = search["chosen"] + 1 if is_pivot else 1
            pos, token = tuple(data["pos"]), tuple(data["token"])
            history.append(Commit(pos, token, min(data["p"]), data["cause"], before, rank))
    return history


def bisect(
    engine: Engine, task: Task, items: Sequence[Item], histories: Sequence[list[Commit]], length: int
) -> list[int]:
    """Return for each item the index of a commit before which it could be solved and after which not."""
    good, bad = [0] * len(items), [len(history) for history in histories]  # commits replayed
    while todo := [i for i in range(len(items)) if bad[i] - good[i] > 1]:
        middle = {i: (good[i] + bad[i]) // 2 for i in todo}
        decoders = [resume(histories[i][: middle[i]]) for i in todo]
        solved = finish(engine, task, [items[i] for i in todo], decoders, length)
        for i, is_solved in zip(todo, solved, strict=True):
            (good if is_solved else bad)[i] = middle[i]
    return [n - 1 for n in bad]


def resume(history: Sequence[Commit]) -> Resumed:
    """Return the decoder that starts from these commits."""
    pos = tuple(pos for commit in history for pos in commit.pos)
    return Resumed(pos, tuple(token for commit in history for token in commit.token))


def finish(
    engine: Engine, task: Task, items: Sequence[Item], decoders: Sequence[Decoder], length: int
) -> list[bool]:
    """Decode each item with its own decoder, up to its end token, and score it."""
    if not items:
        return []
    options = [Options(decoder, length, stop_at_end=True) for decoder in decoders]
    results = engine.generate([item.prompt for item in items], options)
    return task.score_many(items, [result.text for result in results])


def _bins(commits: Sequence[Commit]) -> dict[str, int]:
    """Count pivots by entropy before; a key is the lower edge of its bin in nats."""
    pivots = [commit for commit in commits if commit.cause == "pivot"]
    counts = Counter(int(commit.entropy / BIN_NATS) for commit in pivots)
    return {f"{BIN_NATS * i:.2f}": counts[i] for i in sorted(counts)}


def _case(item: Item, result: Result, history: Sequence[Commit], k: int) -> Line:
    guilty = history[k]
    pieces = next(event.data["pieces"] for event in result.trace or [] if event.kind == "end")
    return {
        "item": item.id, "kind": item.kind, "commit": k + 1, "of": len(history), "cause": guilty.cause,
        "rank": guilty.rank, "entropy": round(guilty.entropy, 3), "p": round(guilty.p, 3),
        "tokens": [pieces.get(str(token), "") for token in guilty.token], "text": result.text,
    }  # fmt: skip
