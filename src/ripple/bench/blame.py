"""Which commits cost RPS the items that one token per step solves?

Run: `ripple bench blame`. An item is lost when one-token-per-step decoding solves it and RPS does not. RPS's
commits are replayed up to some point and the rest is decoded one token per step; the first commit after
which the item comes out wrong, found by bisection, is the guilty one. That is a test, not a reading of
tokens: where several phrasings are right, a commit is not wrong because it differs from another answer.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ripple.analysis.blame import blame_figure, blame_table
from ripple.analysis.lines import Line, append_line, mend, read_lines
from ripple.bench import grid
from ripple.bench.decoders import open_engine
from ripple.canvas import Canvas
from ripple.decoders import Decoder, Default
from ripple.decoders.base import Conversation
from ripple.engine.engine import Engine
from ripple.engine.result import Result, Settings
from ripple.tasks import Item, Task, get_task
from ripple.trace import Event

KEY = ("model", "family", "n", "length")  # what makes a result line
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


def measure(
    out: Path | None = None, models: str = ",".join(grid.MODELS), families: str = "functions,programs",
    items: int = 16, length: int = 256, device: str = "cpu",
) -> dict[str, Any]:  # fmt: skip
    """Blame what is missing in `out`, draw its table and figure, and return the counts of each line."""
    out = out or Path("results") / "blame-cpu.jsonl"
    mend(out)
    done = {tuple(line[name] for name in KEY) for line in read_lines(out)}
    tasks = [get_task(name) for name in families.split(",")]
    for model in models.split(","):
        todo = [task for task in tasks if (model, task.name, items, length) not in done]
        engine = open_engine(model, device) if todo else None
        for task in todo:
            assert engine is not None
            line = {"bench": "blame", "model": model} | blame(
                engine, task, grid.paper_rps(model), items, length
            )
            append_line(out, line)
            print(f"{model} {task.name}: {line['lost']} of {items} lost", file=sys.stderr, flush=True)
    lines = read_lines(out)
    out.with_suffix(".md").write_text(blame_table(lines), encoding="utf-8")
    if importlib.util.find_spec("matplotlib"):
        blame_figure(lines, out.with_suffix(".svg"))
    shown = ("n", "solved", "lost")
    rows = {f"{line['model']} {line['family']}": {name: line[name] for name in shown} for line in lines}
    return {"bench": "blame", "out": str(out), "lines": rows}


def blame(engine: Engine, task: Task, decoder: Decoder, n: int, length: int) -> Line:
    """Decode n items with RPS and find the guilty commit of each one lost."""
    items = task.test_items(n)
    how: dict[str, Any] = {"length": length, "block": 32, "trace": True}
    results = engine.generate([item.prompt for item in items], decoder=decoder, **how)
    right = task.score_many(items, [result.text for result in results])
    wrong = [i for i in range(n) if not right[i]]
    alone = finish(engine, task, [items[i] for i in wrong], [Default()] * len(wrong), length)
    lost = [i for i, is_solved in zip(wrong, alone, strict=True) if is_solved]
    histories = [commits(result.trace or []) for result in results]
    at = bisect(engine, task, [items[i] for i in lost], [histories[i] for i in lost], length)
    guilty = [histories[i][k] for i, k in zip(lost, at, strict=True)]
    every = [commit for history in histories for commit in history]
    return {
        "family": task.name, "n": n, "length": length, "setting": decoder.describe(), "solved": sum(right),
        "lost": len(lost),
        "commits": dict(Counter(commit.group for commit in every)),
        "guilty": dict(Counter(commit.group for commit in guilty)),
        "bin_nats": BIN_NATS, "pivots_by_entropy": _bins(every), "guilty_by_entropy": _bins(guilty),
        "cases": [
            _case(items[i], results[i], histories[i], k) for i, k in zip(lost, at, strict=True)
        ],
    }  # fmt: skip


def commits(trace: Sequence[Event]) -> list[Commit]:
    """Return the commits of an RPS trace in order."""
    entropy: dict[int, float] = {}
    search: dict[str, Any] = {}
    found = []
    for event in trace:
        data = event.data
        if event.kind == "forward":
            entropy.update(zip(data["pos"], data["entropy"], strict=True))
        elif event.kind == "search":
            search = data
        elif event.kind == "commit" and data["pos"]:
            is_pivot = data["cause"] == "pivot"
            before = search["entropy_before"] if is_pivot else max(entropy[pos] for pos in data["pos"])
            rank = search["chosen"] + 1 if is_pivot else 1
            pos, token = tuple(data["pos"]), tuple(data["token"])
            found.append(Commit(pos, token, min(data["p"]), data["cause"], before, rank))
    return found


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
    sessions = [
        engine.submit(item.prompt, Settings(decoder, length=length, block=32, stop_at_end=True))
        for item, decoder in zip(items, decoders, strict=True)
    ]
    while any(session.finish is None for session in sessions):
        engine.tick()
    return task.score_many(items, [session.result().text for session in sessions])


def _bins(found: Sequence[Commit]) -> dict[str, int]:
    """Count pivots by entropy before; a key is the lower edge of its bin in nats."""
    pivots = [commit for commit in found if commit.cause == "pivot"]
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
