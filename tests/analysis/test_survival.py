"""The table of survival is a function of its lines, and the committed one is that of the committed lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ripple.analysis.survival import survival_table
from ripple.files import read_lines

RESULTS = Path(__file__).parent.parent.parent / "results"
KILL = {
    "bench": "kill",
    "what": "batch",
    "victim": "process",
    "n": 3,
    "jobs": 2,
    "lost": 1,
    "doubled": 4,
    "identical": 1,
}
RAY: dict[str, Any] = KILL | {"what": "batch on ray", "victim": {"driver": 1, "node": 2}}
SERVE = {
    "bench": "kill", "what": "serve on ray", "victim": "replica", "n": 2, "clients": 4, "requests": 1500,
    "failed": 5, "failed_that_were_not_in_flight": 1, "failed_without_503": 2, "wrong": 3,
    "back_s": [2.5, 7.1], "updates": 4, "failed_in_updates": 6,
}  # fmt: skip
SOAK = {
    "bench": "soak", "requests": 2000, "vanish": 0.1, "bad": 0.0, "slow": 0.05, "wrong": 1, "lost": 2,
    "growth": -0.031, "open_files": [5, 8, 4],
}  # fmt: skip
FUZZ = {
    "bench": "fuzz",
    "n": 1200,
    "accepted": 100,
    "refused": 1099,
    "failed": 1,
    "surfaces": {"a": {"n": 1200}},
}


@pytest.mark.parametrize(
    ("lines", "row"),
    [
        (
            [KILL, KILL],
            "| `ripple batch`, SIGKILL | 6 kills (6 × process) | 2 rows lost, 8 doubled; 2 of 4 jobs ended "
            "with the file of an undisturbed one |",
        ),
        ([RAY, RAY], "| 6 kills (2 × driver, 4 × node) |"),
        (
            [SERVE],
            "| 5 requests failed, 1 of them not in flight at a kill, 2 without a 503, 3 wrong; all replicas "
            "back after 2.5 s (median) and 7.1 s (longest); 6 failed in 4 rolling updates |",
        ),
        (
            [SOAK],
            "| the server, soaked | 2,000 requests (10 % leave, 5 % read slowly) | 1 wrong answers, 2 lost; "
            "memory -3.1 % from the first tenth to the last, at most 3 more open files |",
        ),
        ([FUZZ], "| 1,200 (a 1,200) | 1,099 refused cleanly, 100 accepted, 1 neither |"),
    ],
)
def test_lines_of_a_kind_are_one_row(lines: list[dict[str, Any]], row: str) -> None:
    assert row in survival_table("x.jsonl", lines)
    assert survival_table("x.jsonl", lines).count("\n| ") == 3


def test_the_committed_table_is_that_of_the_committed_lines() -> None:
    lines = read_lines(RESULTS / "survival-cpu.jsonl")
    drawn = (RESULTS / "survival-cpu.md").read_text()
    assert lines and drawn == survival_table("survival-cpu.jsonl", lines)
