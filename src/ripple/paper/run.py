"""Runs what the paper's tables and figures need and a folder lacks; each line is on the disk at once.

Batches run in several processes that share the device; requests that are timed run one by one, after
them, alone. A killed run is resumed by `ripple paper` with the same folder.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from ripple.engine.engine import Engine
from ripple.engine.prompts import Prompt
from ripple.errors import RippleError
from ripple.eval.facts import ModelChoice, device_name
from ripple.eval.lines import make_line, read_results
from ripple.eval.runner import chat_prompt
from ripple.eval.settings import guess_nfe, lookaheads
from ripple.eval.sweep import (
    Piece,
    Want,
    check_weights,
    fill,
    open_engine,
    summaries,
    told,
)
from ripple.eval.workers import Worked
from ripple.files import Line, append_line, locked, truncate_partial_line
from ripple.models.load import dtype_name, torch_device
from ripple.options import Options
from ripple.paper import oracle
from ripple.paper.breakdown import time_setting
from ripple.paper.experiments import CODE, tasks_of
from ripple.paper.failures import choose_example, snapshots
from ripple.paper.plan import (
    LineKey,
    OraclePiece,
    ReportOptions,
    all_wants,
    best_untimed,
    is_whole,
    line_key,
    pieces,
    timings,
)
from ripple.pool.cluster import Workers
from ripple.progress import Progress
from ripple.tasks import Item, cut

LINES = "lines.jsonl"
# What a forward of a single request costs, in places of a batch, warming up included; for the time left only.
ALONE = {"cpu": 2, "cuda": 200}


def run(
    options: ReportOptions, folder: Path, workers: int | Workers = 1, reuse: Sequence[Path] = ()
) -> tuple[int, list[RippleError]]:
    """Run what is missing in the folder; return the number of new lines, and what failed.

    What is timed, and the examples, run where the batches ran: here, or on one worker of a cluster.
    """
    call = workers.call if isinstance(workers, Workers) else _call
    out = folder / LINES
    offered = reusable(reuse)
    with locked(out):
        lines = read_results(out)
        check_weights(out, lines, options.models)
        truncate_partial_line(out)
        n_before = len(lines)
        for line in _wanted(options, lines, offered):
            append_line(out, line)
            lines.append(line)
        timed, todo = timings(options, lines), pieces(options, lines)
        costs = _costs(options, timed, todo)
        with Progress("paper", sum(costs.values()), is_quiet=not costs) as progress:
            new, failures = fill(
                out, todo, work, workers, lambda line: costs.get(line_key(line), 0), progress
            )
            lines += new
            timed_lines = (call(_time, options, want) for want in timed)
            late = (call(_time, options, want) for want in best_untimed(options, list(lines)))
            for line in itertools.chain(timed_lines, late, _examples(options, lines, call)):
                append_line(out, line)
                lines.append(line)
                progress.update(costs.get(line_key(line), 0), told(line))
    return len(lines) - n_before, failures


def _call(function: Callable[..., Line], *arguments: Any) -> Line:
    return function(*arguments)


def reusable(reuse: Sequence[Path]) -> list[Line]:
    """Return the summary lines of other result files, or say that there is no such file."""
    for path in reuse:
        if not path.exists():
            raise RippleError(f"There are no result lines to reuse at {path}.")
    return [line for path in reuse for line in read_results(path) if line["kind"] == "summary"]


def _wanted(options: ReportOptions, lines: Sequence[Line], offered: Sequence[Line]) -> Iterator[Line]:
    """Yield the offered lines that are wanted here and not there yet."""
    done = {line_key(line) for line in lines}
    wanted = {options.key(want) for _, want in all_wants(options)} - done
    for line in offered:
        if (key := line_key(line)) in wanted and is_whole(line):
            wanted.discard(key)
            yield line


def _costs(
    options: ReportOptions, timed: Sequence[Want], todo: Sequence[Piece | OraclePiece]
) -> dict[LineKey, float]:
    """Return roughly how many forwards of one canvas each missing line takes."""
    alone = options.n_timed * ALONE.get(torch_device(options.device).type, ALONE["cpu"])
    costs = {options.timing_key(want): alone * guess_nfe(want.setting, want.length) for want in timed}
    for piece in todo:
        if isinstance(piece, OraclePiece):
            costs[piece.key] = piece.cost
        else:
            for setting in piece.settings:
                want = Want(piece.model, piece.task, piece.cache, piece.length, setting)
                costs[options.key(want)] = piece.cost(setting)
    return costs


def work(piece: Piece | OraclePiece) -> Iterator[Worked]:
    """Do one piece of work; runs in a process of its own when there are several."""
    if isinstance(piece, Piece):
        yield from summaries(piece)
        return
    try:
        yield _oracle(piece)
    except RippleError as error:
        yield RippleError(f"{piece.model.name} on {piece.task}, oracle: {error}")


# -- lines that are no summary ----------------------------------------------------------------------------


def _head(analysis: str, model: ModelChoice, task: str, chat: bool, cache: str, engine: Engine) -> Line:
    """Return how every line that is not a setting's begins."""
    return {
        "analysis": analysis, "model": model.name, "model_family": model.family, "task": task, "chat": chat,
        "cache": cache, "device_name": device_name(engine), "dtype": dtype_name(engine.model),
        "torch": str(torch.__version__),
    }  # fmt: skip


def _prompts(items: Sequence[Item], chat: bool) -> list[Prompt]:
    return [chat_prompt(item.prompt, chat) for item in items]


def _time(options: ReportOptions, want: Want) -> Line:
    """Decode a few requests one by one; nothing else runs meanwhile."""
    engine, chat = open_engine(want.model.given, options.device), options.source.chat
    n = min(options.n_timed, options.n_items(want.task))
    items = options.source.task(want.task).test_items(n)
    costs = time_setting(engine, want, _prompts(items, chat))
    return make_line("analysis", _head("timing", want.model, want.task, chat, want.cache, engine) | costs)


def _oracle(piece: OraclePiece) -> Line:
    engine, chat = open_engine(piece.model.given, piece.device), piece.source.chat
    task = piece.source.task(piece.task)
    items = task.test_items(piece.n)
    prompts = _prompts(items, chat)
    traced = oracle.decode_default(engine, prompts, piece.length)
    solved = task.score_many(items, [cut(result.text, task.stops_for(chat)) for result in traced])
    points = oracle.collect(engine, prompts, solved, traced, piece.length)
    head = _head("oracle", piece.model, piece.task, chat, "none", engine)
    return make_line("analysis", head) | {
        "setting": "oracle", "length": piece.length, "n": piece.n, "solved": sum(solved),
        "points": [[round(p.entropy, 4), p.rank, round(p.reduction, 4), p.n_others] for p in points],
    }  # fmt: skip


def _examples(options: ReportOptions, lines: Sequence[Line], call: Callable[..., Line]) -> Iterator[Line]:
    """Yield the decoding snapshots of one item per model and code task, chosen from the lines."""
    known = {line_key(line): line for line in lines}
    failure = next((e for e in options.experiments if e.name == "failure"), None)
    tasks = tasks_of(failure, options.tasks) if failure else ()
    for model, task in itertools.product(options.models, tasks):
        both = [Want(model, task, "none", options.length, s) for s in lookaheads(model.family)]
        rows = [known.get(options.key(want)) for want in both]
        place = (model.name, task, options.source.chat, "none", "lopa,rps")
        is_done = ("snapshots", *place, options.length, options.n_items(task)) in known
        if task in CODE and not is_done and rows[0] is not None and rows[1] is not None:
            yield call(_snapshots, options, both, choose_example(rows[0], rows[1]))


def _snapshots(options: ReportOptions, both: Sequence[Want], number: int) -> Line:
    """Trace one item with LoPA and with RPS."""
    first, chat = both[0], options.source.chat
    engine, task = open_engine(first.model.given, options.device), options.source.task(first.task)
    n = options.n_items(first.task)
    item = task.test_items(n)[number]
    sides: dict[str, Any] = {}
    for want in both:
        how = Options(want.setting, want.length, trace=True)
        [result] = engine.generate(_prompts([item], chat), how)
        right = task.score(item, cut(result.text, task.stops_for(chat)))
        sides[want.setting.name] = {"right": right, "nfe": result.nfe, "snapshots": snapshots(result)}
    head = _head("snapshots", first.model, first.task, chat, "none", engine)
    return make_line("analysis", head) | {
        "setting": "lopa,rps", "length": first.length, "n": n, "item": item.id, "prompt": item.prompt,
        "sides": sides,
    }  # fmt: skip
