"""The published benchmarks `gsm8k`, `math500`, `humaneval` and `mbpp`, from their publishers' files."""

from __future__ import annotations

from pathlib import Path

from ripple.benchmarks.base import Benchmark, CodeBenchmark, Verdict, cut
from ripple.benchmarks.gsm8k import Gsm8k
from ripple.benchmarks.humaneval import HumanEval
from ripple.benchmarks.math500 import Math500
from ripple.benchmarks.mbpp import Mbpp
from ripple.errors import unknown

__all__ = ["BENCHMARKS", "Benchmark", "CodeBenchmark", "Verdict", "cut", "open_benchmark"]

BENCHMARKS: dict[str, type[Benchmark]] = {kind.name: kind for kind in (Gsm8k, Math500, HumanEval, Mbpp)}


def open_benchmark(
    name: str,
    data: Path,
    shots: int | None = None,
    *,
    shots_file: Path | None = None,
    allow_code: bool = False,
    sampler: str = "harness",
    judge: str = "auto",
    cleanup: str = "published",
) -> Benchmark:
    """Read a benchmark from a data folder or file; options that it does not know are left aside.

    Args:
        name: One of `BENCHMARKS`.
        data: A folder with one folder per benchmark, that folder itself, or the test file.
        shots: How many worked examples a prompt shows; None means as many as the papers do.
        shots_file: Where `math500` reads its worked examples.
        allow_code: Whether the code that a model wrote may be run, in the sandbox.
        sampler: How `gsm8k` picks its worked examples, "harness" or "first".
        judge: Who compares the answers of `math500`: "auto", "math_verify" or "ours".
        cleanup: What is kept of a response to `humaneval`, as "published" or "fair".
    """
    data = Path(data)
    if name == Gsm8k.name:
        return Gsm8k.open(data, shots, sampler)
    if name == Math500.name:
        return Math500.open(data, shots, shots_file, judge)
    if name == HumanEval.name:
        return HumanEval.open(data, shots, allow_code, cleanup)
    if name == Mbpp.name:
        return Mbpp.open(data, shots, allow_code)
    raise unknown("benchmark", name, BENCHMARKS)
