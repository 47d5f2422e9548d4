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
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

import ripple
from ripple.analysis.lines import Line, append_line, mend
from ripple.benchmarks import Benchmark, cut
from ripple.decoders import Default
from ripple.engine.engine import Engine
from ripple.engine.prompts import Prompt
from ripple.engine.result import Result, Settings
from ripple.engine.session import Session
from ripple.errors import RippleError
from ripple.eval.results import Summary, read_results, summarize
from ripple.tasks import Item, Task

Progress = Callable[[int, int, Line | None], None]  # items done, items in all, the newest line

# Code is scored in processes of its own, side by side: a group this large, or as old as this at most.
GROUP, GROUP_S = 8, 2.0
_SAMPLE_ROWS = 16  # of the head, which tell two checkpoints apart


class Finished(NamedTuple):
    """One decoded item."""

    item: Item
    result: Result
    wall_seconds: float  # its share of the time the engine has worked since items finished last


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
            _warm_up(engine, todo[0], settings, chat)
            stops = task.stops_for(chat) if isinstance(task, Benchmark) else ()
            for found, right in _scored(task, _decoded(engine, todo, settings, chat), stops):
                name = {"item": found.item.id, "digest": _digest(found.item)}
                line: Line = {**head, **name, **facts, "right": right, **_costs(engine, found)}
                append_line(out, line)
                done[found.item.id] = line
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
        "length": settings.length, "block": settings.block, "cache": cache.name, "refresh": cache.refresh,
        "stock_first": cache.stock_first, "lookahead": settings.lookahead, "seed": settings.seed,
        "temperature": settings.temperature, "stop_at_end": settings.stop_at_end, "stop": list(settings.stop),
        "version": ripple.__version__,
    }  # fmt: skip


def environment_line(engine: Engine, run: str) -> Line:
    """Return the line that says what a run was made with: code, libraries, machine."""
    device = engine.model.device
    on_gpu = device.type == "cuda"
    return {
        "kind": "environment", "run": run, "ripple": ripple.__version__, "source": _source_hash(),
        "torch": str(torch.__version__), "python": platform.python_version(),
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


def _decoded(
    engine: Engine, items: Sequence[Item], settings: Settings, chat: bool
) -> Iterator[list[Finished]]:
    """Yield what has finished after every tick, often nothing; a free place is filled before the next."""
    feed, live = deque(items), list[tuple[Item, Session]]()
    spent = 0.0
    try:
        while feed or live:
            while feed and len(live) < engine.max_batch and engine.n_waiting < engine.queue_limit:
                item = feed.popleft()
                live.append((item, _submit(engine, item, settings, chat)))
            start = time.perf_counter()
            engine.tick()
            spent += time.perf_counter() - start
            ended = [(item, session) for item, session in live if session.finish is not None]
            live = [(item, session) for item, session in live if session.finish is None]
            yield [Finished(item, _result(item, session), spent / len(ended)) for item, session in ended]
            if ended:
                spent = 0.0
    finally:
        for _, session in live:
            session.cancel()


def _submit(engine: Engine, item: Item, settings: Settings, chat: bool) -> Session:
    try:
        turn: Prompt = [{"role": "user", "content": item.prompt}]
        return engine.submit(turn if chat else item.prompt, settings)
    except RippleError as error:
        raise RippleError(f"Item {item.id}: {error}") from None


def _result(item: Item, session: Session) -> Result:
    try:
        return session.result()
    except RippleError as error:
        raise RippleError(f"Item {item.id}: {error}") from None


def _scored(
    task: Task, decoded: Iterator[list[Finished]], stops: Sequence[str]
) -> Iterator[tuple[Finished, bool]]:
    """Yield each finished item with its verdict: text at once, code in small groups."""
    group: list[Finished] = []
    since = 0.0
    for ended in decoded:
        if ended and not group:
            since = time.monotonic()
        group += ended
        if not group:
            continue
        is_code = any(found.item.tests for found in group)
        if not is_code or len(group) >= GROUP or time.monotonic() - since > GROUP_S:
            yield from _verdicts(task, group, stops)
            group = []
    yield from _verdicts(task, group, stops)


def _verdicts(task: Task, group: Sequence[Finished], stops: Sequence[str]) -> Iterator[tuple[Finished, bool]]:
    texts = [cut(found.result.text, stops) for found in group]
    right = task.score_many([found.item for found in group], texts)
    return zip(group, right, strict=True)


def _costs(engine: Engine, found: Finished) -> Line:
    """Return what one item's decoding gave and took."""
    result, filler = found.result, engine.model.config.end_ids[0]
    unfinished = engine.model.config.mask_id
    return {
        "text": result.text, "finish": result.finish, "nfe": result.nfe, "nfe_normal": result.nfe_normal,
        "nfe_lookahead": result.nfe_lookahead, "rows": result.rows, "prompt_tokens": result.prompt_tokens,
        "new_tokens": len(result.new_tokens),
        # Fast-dLLM's count: every token of the canvas that is not the filler, wherever it stands.
        "tokens_fast_dllm": sum(token not in (filler, unfinished) for token in result.token_ids),
        "seconds": round(result.seconds, 6), "wall_seconds": round(found.wall_seconds, 6),
    }  # fmt: skip


def _warm_up(engine: Engine, item: Item, settings: Settings, chat: bool) -> None:
    """Run one forward, so that the first items do not pay for the device's start."""
    length = settings.length
    for _ in _decoded(engine, [item], Settings(Default(k=length), length=length, block=length), chat):
        pass
