"""Packs a finished run into one `summary` line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import torch

from ripple.analysis.statistics import pack_bits
from ripple.engine.result import Result
from ripple.eval.facts import device_name
from ripple.eval.lines import make_line, run_name
from ripple.eval.results import MEANS, StoredRun, marks, summarize
from ripple.eval.runner import Evaluation
from ripple.eval.searches import count_bound_pairs, search_facts
from ripple.files import Line
from ripple.tasks import cut

_COUNTS_LINES = ("lopa", "rps")  # decoders whose failures on code are compared by length


def packed(run: Evaluation, rows: Sequence[Line], traced: Sequence[Result] = ()) -> Line:
    """Return the line of a run from what was measured of each item, in the order of the items.

    Args:
        run: what was run.
        rows: as `Evaluation.measured` yields them.
        traced: some of the responses of RPS, with traces.
    """
    name = run_name(run.facts)
    sums = summarize(StoredRun(run.facts | {"run": name}, list(rows)))
    means = {key: value for key, value in asdict(sums).items() if key in MEANS}
    line = make_line("summary", {"run": name, **run.facts}) | {
        "n": sums.n, "accuracy": sums.accuracy, "interval": list(sums.interval),
        "right": pack_bits([row["right"] for row in rows]), **means,
        "tokens_fast_dllm": sums.tokens_fast_dllm, "seconds": round(sums.seconds, 3), "tps": sums.tps,
        "device_name": device_name(run.engine), "torch": str(torch.__version__),
        "batch": run.engine.max_batch, "nfe_items": [row["nfe"] for row in rows],
    }  # fmt: skip
    if by_mark := marks(rows):
        line["marks"] = {mark: pack_bits(verdicts) for mark, verdicts in by_mark.items()}
    if run.task.runs_code and line["decoder"] in _COUNTS_LINES:
        line["source_lines"] = [source_lines(cut(row["text"], run.stops)) for row in rows]
    if traced:
        line |= {"search": search_facts(traced), "bound": count_bound_pairs(traced)}
    return line


def source_lines(text: str) -> int:
    """Count the lines of a program that are not empty."""
    return sum(bool(line.strip()) for line in text.splitlines())
