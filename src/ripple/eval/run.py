"""Decodes a task in continuous batches and writes each item's line as soon as it is scored.

A kill at any moment loses the items that were not scored yet and nothing else: the next run on the same
file with the same settings goes on with what is missing. Requests do not influence each other, so the
lines are those of an undisturbed run, the seconds aside; they stand in the order in which they finished.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch

import ripple
from ripple.analysis.lines import Line, append_line, mend
from ripple.benchmarks import Benchmark
from ripple.engine.engine import Engine
from ripple.engine.result import Settings
from ripple.errors import RippleError
from ripple.eval.decode import Finished, Job, decoded, response, tokens_fast_dllm, warm_up
from ripple.eval.results import Summary, read_results, summarize
from ripple.tasks import Item, Task

Progress = Callable[[int, int, Line | None], None]  # items done, items in all, the newest line

# Code is scored in processes of its own, side by side: a group this large, or as old as this at most.
GROUP, GROUP_S = 8, 2.0
_SAMPLE_ROWS = 16  # of the head, which tell two checkpoints apart


class Scored(NamedTuple):
    """One decoded item and its marks."""

    item: Item
    found: Finished
    marks: Line  # "right", and for a benchmark both marks and what each took for the answer


def silent(done: int, n: int, line: Line | None) -> None:
    """Hear of progress and say nothing."""


def evaluate(
    engine: Engine, task: Task, settings: Settings, out: Path, limit: int | None = None, *, model: str,
    chat: bool = False, task_facts: Mapping[str, Any] | None = None, progress: Progress = silent,
) -> Summary:  # fmt: skip
    """Decode and score the first `limit` test items that `out` lacks, then sum up all of them.

    Other settings make another run, kept apart in the same file.

    Args:
        engine: the loaded model; its `max_batch` is how many items are decoded together.
        task: where the items come from and who scores them.
        settings: how each item is decoded.
        out: the result file, made when it is not there.
        limit: how many items, from the first on; None means all.
        model: the model's name in the lines.
        chat: wrap each prompt as a user's turn in the model's chat template.
        task_facts: what the task's name leaves open, such as shots or checksums; part of what names a run.
        progress: told the items done, the items in all and the newest line, after every line.
    """
    if limit is not None and limit < 1:
        raise RippleError(f"The limit must be at least 1 item, got {limit}.")
    items = task.test_items() if limit is None else task.test_items(limit)
    settings = replace(settings, trace=False)  # a trace per item would fill the memory
    facts = run_facts(engine, task, settings, model) | {"chat": chat} | dict(task_facts or {})
    run = short_hash(facts)
    with locked(out):
        lines = read_results(out)
        mend(out)
        done = _done(out, lines, run, items)
        todo = [item for item in items if item.id not in done]
        progress(len(done), len(items), None)
        if todo:
            environment = environment_line(engine, run)
            if environment not in lines:
                append_line(out, environment)
            head = {"kind": "item", "run": run, "environment": short_hash(environment)}
            jobs = [_job(item, settings, chat) for item in todo]
            warm_up(engine, jobs[0])
            stops = task.stops_for(chat) if isinstance(task, Benchmark) else ()
            for item, found, marks in _scored(task, todo, decoded(engine, jobs), stops):
                name = {"item": item.id, "digest": _digest(item)}
                line: Line = {**head, **name, **facts, **marks, **_costs(engine, found, stops)}
                append_line(out, line)
                done[item.id] = line
                progress(len(done), len(items), line)
    return summarize([done[item.id] for item in items])


# -- what a run is --------------------------------------------------------------------------------------


def run_facts(engine: Engine, task: Task, settings: Settings, model: str) -> Line:
    """Return everything that determines what is decoded, as plain values; their hash names the run."""
    net, cache, decoder = engine.model, settings.cache, settings.decoder
    return {
        "model": model, "weights": _weights_hash(engine), "device": net.device.type,
        "dtype": str(net.dtype).removeprefix("torch."), "fused": net.fused, "task": task.name,
        "decoder": decoder.name, "setting": decoder.describe(), "fields": decoder.settings(),
        "length": settings.length, "block": settings.block, "cache": cache.describe(),
        "refresh": cache.refresh, "stock_first": cache.stock_first, "lookahead": settings.lookahead,
        "seed": settings.seed, "temperature": settings.temperature, "stop_at_end": settings.stop_at_end,
        "stop": list(settings.stop),
        "version": ripple.__version__,
    }  # fmt: skip


def environment_line(engine: Engine, run: str) -> Line:
    """Return the line that says what a run was made with: code, libraries, machine."""
    device = engine.model.device
    on_gpu = device.type == "cuda"
    return {
        "kind": "environment", "run": run, "ripple": ripple.__version__, "source": _source_hash(),
        "torch": str(torch.__version__), "cuda": torch.version.cuda,
        "tokenizers": version("tokenizers"),
        "python": platform.python_version(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "device": torch.cuda.get_device_name(device) if on_gpu else platform.machine(),
        "dtype": str(engine.model.dtype).removeprefix("torch."), "threads": torch.get_num_threads(),
        "batch": engine.max_batch,
    }  # fmt: skip


def short_hash(facts: Line) -> str:
    """Return twelve hex digits that stand for these values."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def _weights_hash(engine: Engine) -> str:
    """Hash a sample of the weights: a folder's name does not say which checkpoint lies in it today."""
    weights = engine.model.weights
    sample = [weights.norm, weights.head[:_SAMPLE_ROWS], *(layer.down[:1] for layer in weights.layers)]
    data = torch.cat([part.detach().reshape(-1).float().cpu() for part in sample])
    return hashlib.sha256(data.numpy().tobytes()).hexdigest()[:12]


def _source_hash() -> str:
    """Hash the package's own source; told in the environment only, or every edit would end a run."""
    root = Path(ripple.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _digest(item: Item) -> str:
    """Hash what an item asks and how it is scored."""
    return short_hash({"prompt": item.prompt, "answer": item.answer, "tests": item.tests})


# -- the file -------------------------------------------------------------------------------------------


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file for one run; the system lets go of it when the process dies, however that happens."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RippleError(f"Cannot write the results {path}: {error.strerror}.") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RippleError(
                f"Another run is writing {path}; wait for its end or name another file."
            ) from None
        yield
    finally:
        os.close(descriptor)


def _done(out: Path, lines: Sequence[Line], run: str, items: Sequence[Item]) -> dict[str, Line]:
    """Return this run's lines by item, after checking that they are about the same items."""
    wanted = {item.id: item for item in items}
    rows = {
        line["item"]: line
        for line in lines
        if line["kind"] == "item" and line["run"] == run and line["item"] in wanted
    }
    for name, row in rows.items():
        if row["digest"] != _digest(wanted[name]):
            raise RippleError(f"{out} was made with another version of item {name}; name another file.")
    return rows


# -- decoding and scoring -------------------------------------------------------------------------------


def _job(item: Item, settings: Settings, chat: bool) -> Job:
    prompt = [{"role": "user", "content": item.prompt}] if chat else item.prompt
    return Job(f"Item {item.id}", prompt, settings)


def _scored(
    task: Task, items: Sequence[Item], ticks: Iterator[list[Finished]], stops: Sequence[str]
) -> Iterator[Scored]:
    """Yield each finished item with its marks: text at once, code in small groups."""
    group: list[Finished] = []
    since = 0.0
    for ended in ticks:
        if ended and not group:
            since = time.monotonic()
        group += ended
        if not group:
            continue
        is_code = any(items[found.place].tests for found in group)
        if not is_code or len(group) >= GROUP or time.monotonic() - since > GROUP_S:
            yield from _marked(task, items, group, stops)
            group = []
    yield from _marked(task, items, group, stops)


def _marked(
    task: Task, items: Sequence[Item], group: Sequence[Finished], stops: Sequence[str]
) -> Iterator[Scored]:
    of = [items[found.place] for found in group]
    texts = [response(found.result, stops) for found in group]
    marks: list[Line]
    if isinstance(task, Benchmark):
        verdicts = task.details(of, texts)
        marks = [{"right": v.right, "marks": dict(v.marks), "found": dict(v.found)} for v in verdicts]
    else:
        marks = [{"right": right} for right in task.score_many(of, texts)]
    return map(Scored, of, group, marks)


def _costs(engine: Engine, found: Finished, stops: Sequence[str]) -> Line:
    """Return what one item's decoding gave and took; tokens by our count and by Fast-dLLM's."""
    result = found.result
    return {
        "text": result.text, "finish": result.finish, "nfe": result.nfe, "nfe_normal": result.nfe_normal,
        "nfe_lookahead": result.nfe_lookahead, "rows": result.rows, "prompt_tokens": result.prompt_tokens,
        "new_tokens": len(result.new_tokens), "tokens_fast_dllm": tokens_fast_dllm(engine, result, stops),
        "seconds": round(result.seconds, 6), "wall_seconds": round(found.wall_seconds, 6),
    }  # fmt: skip
