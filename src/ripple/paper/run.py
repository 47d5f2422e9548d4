"""Runs what the paper's tables and figures need and a folder lacks; each line is on the disk at once.

Batches run in several processes that share the device; requests that are timed run one by one, after
them, alone. A killed run goes on where it stopped: `ripple paper` with the same folder.
"""

from __future__ import annotations

import functools
import itertools
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from ripple.analysis.lines import Line, append_line, mend, read_lines
from ripple.bench.decoders import measure_unit, open_engine, run_all
from ripple.bench.grid import paper_rps
from ripple.benchmarks import Benchmark, cut
from ripple.engine.engine import Engine
from ripple.engine.prompts import Prompt
from ripple.errors import RippleError
from ripple.eval.run import locked
from ripple.models.load import torch_device
from ripple.paper import oracle
from ripple.paper.bound import count_pairs
from ripple.paper.breakdown import time_setting
from ripple.paper.experiments import CODE, Want, guess_nfe, lookaheads, tasks_of
from ripple.paper.lengths import choose_example, snapshots, source_lines
from ripple.paper.plan import (
    Job,
    Request,
    Source,
    all_wants,
    best_untimed,
    is_whole,
    jobs,
    line_key,
    timings,
)
from ripple.tasks import Item, Task

LINES = "lines.jsonl"
# What a forward of a single request costs, in places of a batch, warming up included; for the time left only.
ALONE = {"cpu": 2, "cuda": 200}


def run(request: Request, folder: Path, workers: int = 1, reuse: Sequence[Path] = ()) -> int:
    """Run what is missing in the folder and return the number of new lines."""
    out = folder / LINES
    with locked(out):
        mend(out)
        lines = read_lines(out)
        n_before = len(lines)
        for line in _reusable(request, lines, reuse):
            append_line(out, line)
            lines.append(line)
        timed, todo = timings(request, lines), jobs(request, lines)
        progress = _Progress(timed, todo, request)
        for line in run_all(work, todo, workers):
            lines.append(_append(out, line, progress))
        for want in timed:
            lines.append(_append(out, _time(request, want), progress))
        late = (_time(request, want) for want in best_untimed(request, list(lines)))
        for line in itertools.chain(late, _examples(request, lines)):
            lines.append(_append(out, line, progress))
    return len(lines) - n_before


def work(job: Job) -> Iterator[Line]:
    """Do one piece of work; runs in a process of its own when there are several."""
    unit = job.unit
    engine, task = _engine(unit.model, unit.device), job.source.task(unit.family)
    stops = _stops(task, job.source)
    if job.kind == "oracle":
        yield _head("oracle", job.name, unit.family, "none", engine) | _oracle(job, engine, task)
        return
    main = paper_rps(job.name).describe()
    for found in measure_unit(unit, engine, task, job.source.chat, stops, _verdicts):
        line = found.line | {"model": job.name}
        if line["method"] in ("lopa", "rps") and unit.family in CODE:
            line["source_lines"] = [source_lines(cut(result.text, stops)) for result in found.results]
        if line["setting"] == main and unit.cache == "none":
            line["bound"] = count_pairs(found.traced)
        yield line


_verdicts: dict[tuple[str, str], bool] = {}  # this process's, over all its pieces of work


@functools.lru_cache(maxsize=4)
def _engine(model: str, device: str) -> Engine:
    return open_engine(model, device)


def _stops(task: Task, source: Source) -> tuple[str, ...]:
    return task.stops_for(source.chat) if isinstance(task, Benchmark) else ()


def _prompts(items: Sequence[Item], source: Source) -> list[Prompt]:
    if source.chat:
        return [[{"role": "user", "content": item.prompt}] for item in items]
    return [item.prompt for item in items]


def _head(experiment: str, name: str, task: str, cache: str, engine: Engine) -> Line:
    """Return how every line that is not a setting's begins."""
    device = engine.model.device
    return {
        "bench": "paper", "experiment": experiment, "model": name, "family": task, "cache": cache,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        "dtype": str(engine.model.dtype).removeprefix("torch."), "torch": str(torch.__version__),
    }  # fmt: skip


def _time(request: Request, want: Want) -> Line:
    """Decode a few requests one by one; nothing else runs meanwhile."""
    engine = _engine(request.models[want.model], request.device)
    items = request.source.task(want.task).test_items(min(request.n_timed, request.n_items(want.task)))
    costs = time_setting(engine, want, _prompts(items, request.source))
    return _head("timing", want.model, want.task, want.cache, engine) | costs


def _oracle(job: Job, engine: Engine, task: Task) -> Line:
    unit = job.unit
    items = task.test_items(unit.n)
    prompts = _prompts(items, job.source)
    traced = oracle.decode_default(engine, prompts, unit.length)
    texts = [cut(result.text, _stops(task, job.source)) for result in traced]
    solved = task.score_many(items, texts)
    points = oracle.collect(engine, prompts, solved, traced, unit.length)
    return {
        "method": "oracle", "setting": "oracle", "length": unit.length, "n": unit.n, "solved": sum(solved),
        "points": [[round(p.entropy, 4), p.rank, round(p.reduction, 4), p.n_others] for p in points],
    }  # fmt: skip


def _examples(request: Request, lines: Sequence[Line]) -> Iterator[Line]:
    """Yield the decoding snapshots of one item per model and code task, chosen from the lines."""
    known = {line_key(line): line for line in lines}
    failure = next((e for e in request.experiments if e.name == "failure"), None)
    for model, task in itertools.product(request.models, tasks_of(failure, request.tasks) if failure else ()):
        n = request.n_items(task)
        both = [Want(model, task, "none", request.length, s) for s in lookaheads(model)]
        rows = [known.get((None, *want.key(n))) for want in both]
        if ("snapshots", model, task, "none", "lopa,rps", n, request.length) in known or task not in CODE:
            continue
        if rows[0] is not None and rows[1] is not None:
            yield _snapshots(request, both, choose_example(rows[0], rows[1]))


def _snapshots(request: Request, both: Sequence[Want], index: int) -> Line:
    """Trace one item with LoPA and with RPS."""
    first = both[0]
    engine = _engine(request.models[first.model], request.device)
    task = request.source.task(first.task)
    n = request.n_items(first.task)
    item = task.test_items(n)[index]
    sides = {}
    for want in both:
        prompt = _prompts([item], request.source)[0]
        result = engine.generate(prompt, decoder=want.setting, length=want.length, block=32, trace=True)
        right = task.score(item, cut(result.text, _stops(task, request.source)))
        shown = snapshots(result)
        sides[want.setting.name] = {"right": right, "nfe": result.nfe, "snapshots": shown}
    head = _head("snapshots", first.model, first.task, "none", engine)
    return head | {
        "method": "lopa,rps", "setting": "lopa,rps", "length": first.length, "n": n, "item": item.id,
        "prompt": item.prompt, "sides": sides,
    }  # fmt: skip


def _reusable(request: Request, lines: Sequence[Line], reuse: Sequence[Path]) -> Iterator[Line]:
    """Yield lines of other result files that are wanted here and not there yet."""
    done = {line_key(line) for line in lines}
    wanted = {(None, *want.key(request.n_items(want.task))) for _, want in all_wants(request)} - done
    for path in reuse:
        if not path.exists():
            raise RippleError(f"There are no result lines to reuse at {path}.")
        for line in read_lines(path):
            if line.get("bench") == "decoders" and (key := line_key(line)) in wanted and is_whole(line):
                wanted.discard(key)
                yield line


def _append(out: Path, line: Line, progress: _Progress) -> Line:
    append_line(out, line)
    progress(line)
    return line


class _Progress:
    """Says on stderr what came, how much is left and for how long, by the forwards that remain."""

    def __init__(self, timed: Sequence[Want], todo: Sequence[Job], request: Request) -> None:
        alone = request.n_timed * ALONE[torch_device(request.device).type]
        self.left: dict[tuple[object, ...], float] = {}
        for job in todo:
            unit = job.unit
            for setting in unit.settings:
                place = (job.name, unit.family, unit.cache, setting.describe(), unit.length)
                self.left[(None, *place)] = unit.n * guess_nfe(setting, unit.length)
            if job.kind == "oracle":
                self.left["oracle", job.name, unit.family, unit.cache, "oracle", unit.length] = job.cost
        for want in timed:  # a forward for one request takes as long as one for many
            place = (*want.key(0)[:4], want.length)
            self.left[("timing", *place)] = alone * guess_nfe(want.setting, want.length)
        self.n, self.n_done, self.spent = len(self.left), 0, 0.0
        self.start = time.monotonic()

    def __call__(self, line: Line) -> None:
        """Tell of one line."""
        place = tuple(line[name] for name in ("model", "family", "cache", "setting", "length"))
        self.spent += self.left.pop((line.get("experiment"), *place), 0.0)
        self.n_done += 1
        left_s = (time.monotonic() - self.start) / max(self.spent, 1e-9) * sum(self.left.values())
        what = " ".join(str(word) for word in (line.get("experiment", ""), *place) if word)
        found = f": acc {100 * line['accuracy']:.1f}" if "accuracy" in line else ""
        found += f", NFE {line['nfe']:.1f}" if "nfe" in line else ""
        print(f"[{self.n_done}/{self.n}, {left_s:.0f} s left] {what}{found}", file=sys.stderr, flush=True)
