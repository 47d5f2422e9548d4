"""Rows of our own in the publishers' formats: nothing here is taken from a benchmark."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

GSM_TRAIN = [
    {
        "question": f"Ada plants {n} rows of {n} beans. How many beans?",
        "answer": f"{n}*{n}={n * n}\n#### {n * n}",
    }
    for n in range(2, 12)
]
GSM_TEST = [
    {"question": "Bo has 3 boats with 4 oars each. How many oars?", "answer": "3*4=<<3*4=12>>12\n#### 12"},
    {"question": "Cy earns $500 a day for 3 days. How much?", "answer": "500*3=1500\n#### 1,500"},
]
MATH_TEST = [
    {
        "problem": "Add $1$ and $2$.",
        "solution": "We have $1+2=\\boxed{3}$.",
        "answer": "3",
        "subject": "Algebra",
        "level": 1,
        "unique_id": "own/1",
    },
    {
        "problem": "Halve $3$.",
        "solution": "It is $\\boxed{\\frac{3}{2}}$.",
        "answer": "\\frac{3}{2}",
        "subject": "Prealgebra",
        "level": 2,
        "unique_id": "own/2",
    },
]
MATH_SHOTS = [
    {
        "problem": f"Double ${n}$.",
        "solution": f"$\\boxed{{{2 * n}}}$.\n"
        f"Final Answer: The final answer is ${2 * n}$. I hope it is correct.",
    }
    for n in (4, 5)
]
HUMANEVAL = [
    {
        "task_id": "HumanEval/0",
        "prompt": 'from typing import List\n\n\ndef total(xs: List[int]) -> int:\n    """Add up xs."""\n',
        "entry_point": "total",
        "canonical_solution": "    return sum(xs)\n",
        "test": "\n\ndef check(candidate):\n"
        "    assert candidate([1, 2]) == 3\n    assert candidate([]) == 0\n",
    },
    {
        "task_id": "HumanEval/1",
        "prompt": (
            'def wrap(s):\n    """Put s in stars."""\n    return "*" + s + "*"\n\n\n'
            'def unwrap(s):\n    """Undo wrap."""\n'
        ),
        "entry_point": "unwrap",
        "canonical_solution": "    return s[1:-1]\n",
        "test": "def check(candidate):\n    assert candidate(wrap('a')) == 'a'\n",
    },
]
MBPP = [
    {
        "text": f"Write a function to add {n}.",
        "code": f"def add(x):\r\n  return x + {n}",
        "task_id": n,
        "test_setup_code": "",
        "test_list": [f"assert add({x}) == {x + n}" for x in range(3)],
        "challenge_test_list": [],
    }
    for n in (1, 2, 3, 4, 11, 12, 600)
]
MBPP[5] = {
    **MBPP[5],
    "code": "class Box:\n  v = 12\ndef add(b):\n  return b.v",
    "test_setup_code": "b = Box()",
}
MBPP[5]["test_list"] = ["assert add(b) == 12", "assert add(b) > 0", "assert b"]


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".json":
        path.write_text(json.dumps(list(rows), indent=1))
        return path
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def folder(root: Path) -> Path:
    """Lay out a data folder with a few rows per benchmark."""
    write(root / "gsm8k" / "train.jsonl.gz", GSM_TRAIN)
    write(root / "gsm8k" / "test.jsonl", GSM_TEST)
    write(root / "math500" / "test.jsonl", MATH_TEST)
    write(root / "humaneval" / "HumanEval.jsonl.gz", HUMANEVAL)
    write(root / "mbpp" / "mbpp.jsonl", MBPP)
    return root
