"""What item lines come to: a run summed up, and two runs compared item by item. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ripple.analysis.statistics import mean_difference, paired, wilson
from ripple.errors import RippleError
from ripple.eval.lines import read_results
from ripple.files import Line

MEANS = ("nfe", "nfe_normal", "nfe_lookahead", "canvases", "prompt_tokens", "new_tokens")


class StoredRun(NamedTuple):
    """A run as a file holds it."""

    facts: Line  # the run's own line
    items: list[Line]


@dataclass(frozen=True)
class Summary:
    """A run in numbers: means are per item, speed is over the engine's time."""

    run: str
    model: str
    task: str
    decoder: str
    setting: str  # the decoder with the fields that differ from their defaults
    n: int
    n_right: int
    accuracy: float
    interval: tuple[float, float]  # Wilson, 95 %
    nfe: float
    nfe_normal: float
    nfe_lookahead: float
    canvases: float
    prompt_tokens: float
    new_tokens: float  # ours: up to and including the first end token
    tps: float  # tokens per second
    seconds: float  # of the engine, over all the processes that worked on the run
    marks: dict[str, float] = field(default_factory=dict)  # accuracy by each mark, where the task has several
    tokens_fast_dllm: float | None = None  # by Fast-dLLM's count, where every line has it
    tps_fast_dllm: float | None = None


@dataclass(frozen=True)
class RunComparison:
    """Two runs, a and b, over the items that both have; differences are b minus a."""

    n: int
    accuracy_a: float
    accuracy_b: float
    difference: float
    interval: tuple[float, float]  # of the difference, 95 %
    only_a: int  # items that a alone solves
    only_b: int
    p: float  # exact McNemar, two-sided
    nfe_a: float
    nfe_b: float
    nfe_interval: tuple[float, float]  # of the difference in forwards per item, 95 %
    left_out_a: int  # items that b does not have
    left_out_b: int


def read_run(name: str) -> StoredRun:
    """Return one run, named `FILE`, or `FILE#RUN` where the file holds several."""
    path, run = Path(name), ""
    if not path.exists() and "#" in name:
        file, _, run = name.rpartition("#")
        path = Path(file)
    if not path.exists():
        raise RippleError(f"Cannot read the results {path}: no such file.")
    lines = read_results(path)
    facts = {line["run"]: line for line in lines if line["kind"] == "run"}
    items: dict[str, list[Line]] = {}
    for line in lines:
        if line["kind"] == "item" and line["run"].startswith(run):
            items.setdefault(line["run"], []).append(line)
    if not items:
        packed = any(line["kind"] == "summary" and line["run"].startswith(run) for line in lines)
        why = "; the runs that it holds are packed, without their items" if packed else ""
        raise RippleError(f"{path} holds no items{f' of run {run}' if run else ''}{why}.")
    if len(items) > 1:
        known = ", ".join(f"{key} ({facts[key]['setting']} on {facts[key]['task']})" for key in items)
        raise RippleError(f"{path} holds {len(items)} runs; name one as {path}#RUN: {known}.")
    key, rows = next(iter(items.items()))
    return StoredRun(facts[key], rows)


def summarize(run: StoredRun) -> Summary:
    """Sum up a run."""
    rows = run.items
    n, n_right = len(rows), sum(row["right"] for row in rows)
    if not n:
        raise RippleError("There are no items to sum up.")
    seconds = float(sum(row["engine_seconds"] for row in rows))
    means = {name: sum(row[name] for row in rows) / n for name in MEANS}
    # Fast-dLLM's count is of a text tokenised again and may be missing; a mean over some rows would mislead.
    theirs = [count for row in rows if (count := row["tokens_fast_dllm"]) is not None]
    n_theirs = sum(theirs) if len(theirs) == n else None
    names = {name: run.facts[name] for name in ("run", "model", "task", "decoder", "setting")}
    return Summary(
        **names,
        n=n,
        n_right=n_right,
        accuracy=n_right / n,
        interval=wilson(n_right, n),
        tps=n * means["new_tokens"] / seconds if seconds else 0.0,
        seconds=seconds,
        marks={name: sum(verdicts) / n for name, verdicts in marks(rows).items()},
        tokens_fast_dllm=None if n_theirs is None else n_theirs / n,
        tps_fast_dllm=n_theirs / seconds if n_theirs is not None and seconds else None,
        **means,
    )


def marks(rows: Sequence[Line]) -> dict[str, list[bool]]:
    """Return the verdicts by each mark that every line carries."""
    names = [name for name in rows[0]["marks"] if all(name in row["marks"] for row in rows)]
    return {name: [row["marks"][name] for row in rows] for name in names}


def compare(a: StoredRun, b: StoredRun) -> RunComparison:
    """Compare two runs over the items that both have."""
    of_a, of_b = ({row["item"]: row for row in run.items} for run in (a, b))
    shared = [name for name in of_a if name in of_b]
    if not shared:
        raise RippleError("The two runs have no item in common.")
    for name in shared:
        if of_a[name]["digest"] != of_b[name]["digest"]:
            raise RippleError(f"The two runs mean different problems by item {name}.")
    both = [(of_a[name], of_b[name]) for name in shared]
    right = paired([x["right"] for x, _ in both], [y["right"] for _, y in both])
    n = right.n
    nfe_a, nfe_b = [x["nfe"] for x, _ in both], [y["nfe"] for _, y in both]
    nfe_step, nfe_half = mean_difference(nfe_a, nfe_b)
    return RunComparison(
        n=n,
        accuracy_a=sum(x["right"] for x, _ in both) / n,
        accuracy_b=sum(y["right"] for _, y in both) / n,
        difference=right.difference,
        interval=right.interval,
        only_a=right.only_a,
        only_b=right.only_b,
        p=right.p,
        nfe_a=sum(nfe_a) / n,
        nfe_b=sum(nfe_b) / n,
        nfe_interval=(nfe_step - nfe_half, nfe_step + nfe_half),
        left_out_a=len(of_a) - n,
        left_out_b=len(of_b) - n,
    )
