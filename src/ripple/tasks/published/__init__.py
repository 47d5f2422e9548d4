"""Four published benchmarks, from their publishers' files: `gsm8k`, `math500`, `humaneval` and `mbpp`."""

from __future__ import annotations

from pathlib import Path

from ripple.errors import RippleError, unknown
from ripple.tasks.published.base import Benchmark
from ripple.tasks.published.gsm8k import Gsm8k
from ripple.tasks.published.humaneval import HumanEval
from ripple.tasks.published.math500 import Math500
from ripple.tasks.published.mbpp import Mbpp

BENCHMARKS: dict[str, type[Benchmark]] = {kind.name: kind for kind in (Gsm8k, Math500, HumanEval, Mbpp)}


def open_benchmark(
    name: str,
    data: Path,
    shots: int | None = None,
    shots_file: Path | None = None,
    allow_code: bool = False,
) -> Benchmark:
    """Read a benchmark from files; `Gsm8k.open` and `HumanEval.open` have further options.

    Args:
        name: One of `BENCHMARKS`.
        data: A folder with one folder per benchmark, that folder itself, or the test file.
        shots: How many worked examples a prompt shows; None means as many as the papers do.
        shots_file: Where `math500` reads its worked examples.
        allow_code: Whether the code that a model wrote may be run, in the sandbox.
    """
    data = Path(data)
    if name not in BENCHMARKS:
        raise unknown("benchmark", name, BENCHMARKS)
    if name == Math500.name:
        return Math500.open(data, shots, shots_file)
    if shots_file is not None:
        raise RippleError(f"{name} takes no file of worked examples ({shots_file}); only math500 does.")
    if name == Gsm8k.name:
        return Gsm8k.open(data, shots)
    return (HumanEval if name == HumanEval.name else Mbpp).open(data, shots, allow_code)
