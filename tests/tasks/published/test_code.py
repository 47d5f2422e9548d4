"""HumanEval's clean-up, MBPP's programs, and the opt-in for running code."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

import ripple.tasks.published.clean as clean
import ripple.tasks.published.mbpp as mbpp
from ripple.errors import RippleError
from ripple.tasks import open_benchmark
from ripple.tasks.published.base import CodeBenchmark
from ripple.tasks.published.humaneval import HumanEval
from tests.tasks.published import rows

PROMPT = str(rows.HUMANEVAL[0]["prompt"])

GOOD = {
    "continuation": "    return sum(xs)\n",
    "continuation and more functions": "    return sum(xs)\n\ndef other():\n    return 1\n",
    "continuation and prose": "    return sum(xs)\n\nThis adds up the list, as asked!\n",
    "fence with the whole function": f"Sure:\n```python\n{PROMPT}    return sum(xs)\n```\nDone.",
    "fence that never closes": f"```python\n{PROMPT}    return sum(xs)\n",
    "two fences": f"```python\n{PROMPT}    return sum(xs)\n```\n```python\ndef total(xs):\n    return 0\n```",
    "helper after use": "    return _go(xs)\n\ndef _go(xs):\n    return sum(xs)\n",
    "helper through a constant": "    return sum(xs) + ZERO\n\ndef one():\n    return 1\nZERO = one() - 1\n",
    "import of its own": "```python\nimport math\ndef total(xs):\n    return int(math.fsum(xs))\n```",
    "uses the prompt's import": "```python\ndef total(xs: List[int]) -> int:\n    return sum(xs)\n```",
    "tabs": "\tn = 0\n\tfor x in xs:\n\t\tn += x\n\treturn n\n",
    "carriage returns": "    n = sum(xs)\r\n    return n\r\n",
    "a failing demonstration": "    return sum(xs)\n\nprint(undefined_name)\nassert total([1]) == 5\n",
    "broken line at the end": "    return sum(xs)\n\ndef other(:\n",
}
BAD = {
    "empty": "",
    "prose": "I would add the numbers.",
    "no return": "    print(sum(xs))\n",
    "wrong": "    return 7\n",
    "no import": "    return int(math.fsum(xs))\n",
    "null byte": "    return sum(xs)\x00\n",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return rows.folder(tmp_path)


def test_humaneval_after_the_clean_up(data: Path) -> None:
    bench = open_benchmark("humaneval", data, allow_code=True)
    texts = {**GOOD, **BAD}
    verdicts = bench.score_many([bench.generate("test", 0)] * len(texts), list(texts.values()), 2)
    assert dict(zip(texts, verdicts, strict=True)) == {
        **dict.fromkeys(GOOD, True),
        **dict.fromkeys(BAD, False),
    }


def test_humaneval_strict_joins_prompt_and_response(data: Path) -> None:
    bench = open_benchmark("humaneval", data, allow_code=True)
    item = bench.generate("test", 0)
    texts = ["    return sum(xs)\n\ndef broken(:", GOOD["fence with the whole function"]]
    plain, chat = bench.judge_many([item, item], texts, 2)
    assert plain.marks == {"strict": True, "flexible": True}
    assert chat.marks == {"strict": False, "flexible": True} and chat.right
    assert chat.found["strict"].startswith("SyntaxError") and chat.found["flexible"] == "ok"


def test_the_published_clean_up_forgets_what_the_tests_call(data: Path) -> None:
    published = open_benchmark("humaneval", data, allow_code=True)
    fair = HumanEval.open(data, allow_code=True, cleanup="fair")
    item = published.generate("test", 1)
    assert "'published'" in published.notes[0]
    assert not published.score(item, item.solution) and fair.score(item, item.solution)
    with pytest.raises(RippleError, match="Unknown clean-up"):
        HumanEval.open(data, cleanup="none")


def test_the_longest_span_that_parses() -> None:
    assert clean.longest_valid("prose here\nx = 1\n\ny = 2\nmore prose\nz = 3") == "x = 1\n\ny = 2"
    assert clean.longest_valid("x = 1\n! !\ny = 2") == "x = 1"  # of equals the first
    assert clean.longest_valid("") == clean.longest_valid("! !\n") == ""
    assert clean.longest_valid("\n".join(f"x{i} = 1" for i in range(300))).count("\n") == clean.MAX_LINES - 1


def test_only_what_is_needed_is_kept() -> None:
    text = (
        "import os\nA, B = 1, 2\nC: int = A\nclass K:\n    z = C\n"
        "def stub(x):\n    pass\ndef unused():\n    return 0\n"
        "def f():\n    return K.z\ndef f():\n    return g() + K.z\nasync def g():\n    return 1\nprint(f())\n"
    )
    kept = clean.keep_needed(text, "f")
    wanted = [
        "import os",
        "A, B = (1, 2)",
        "C: int = A",
        "class K:\n    z = C",
        "def f():\n    return g() + K.z",
        "async def g():\n    return 1",
    ]
    assert [part.strip("\n") for part in re.split(r"\n+(?=\S)", kept)] == wanted
    assert "stub" not in kept and "print" not in kept and kept.count("def f") == 1
    assert clean.keep_needed("not python (", "f") == "not python ("


def test_mbpp_programs(data: Path) -> None:
    bench = open_benchmark("mbpp", data, allow_code=True)
    add, box = bench.test_items()
    code = "def add(x):\n  return x + 11"
    texts = [f"{code}\n[DONE]\n\nanything (", f"```python\n{code}\n```\n[DONE]", "def add(x):\n  return x"]
    plain, fence, wrong = bench.judge_many([add] * 3, texts, 2)
    assert plain.marks == {"strict": True, "flexible": True} and plain.right
    assert fence.marks == {"strict": False, "flexible": True} and not fence.right
    assert wrong.marks == {"strict": False, "flexible": False}
    (setup,) = bench.judge_many([box], [box.solution], 1)
    assert setup.marks == {"strict": False, "flexible": True}  # the harness leaves the set-up code out


def test_fences() -> None:
    assert mbpp.unfenced("a\n```py\nx = 1\n```\nb").strip() == "x = 1"
    assert mbpp.unfenced("```\nx = 1").strip() == "x = 1"
    assert mbpp.unfenced("x = 1") == "x = 1"


@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
def test_code_is_refused_unless_allowed(name: str, data: Path) -> None:
    bench = open_benchmark(name, data)
    items = bench.test_items()
    assert bench.runs_code
    for call in (
        bench.check_ready,
        lambda: bench.score(items[0], ""),
        lambda: bench.judge_many(items, ["", ""]),
    ):
        with pytest.raises(RippleError, match="allow_code=True"):
            call()
    open_benchmark(name, data, allow_code=True).check_ready()
    open_benchmark("gsm8k", data).check_ready()


ATTACKS = {
    "fork bomb": ("import os\nwhile True:\n    os.fork()", "sandbox: no os.fork"),
    "threads without end": (
        "from threading import *\nwhile True:\n    Thread(target=Event().wait, daemon=True).start()",
        "thread",
    ),
    "endless loop": ("while True:\n    pass", "timeout"),
    "sleep": ("import time\ntime.sleep(99)", "timeout"),
    "memory hog": ("x = []\nwhile True:\n    x.append(bytearray(10**8))", "MemoryError"),
    "file write": ("open('stolen', 'w').write('x')", "sandbox: no writing"),
    "file removal": ("import os\nos.remove('stolen')", "sandbox: no os.remove"),
    "network": ("import socket\nsocket.create_connection(('127.0.0.1', 9), 1)", "sandbox: no "),
    "another program": ("import subprocess\nsubprocess.run(['true'])", "sandbox: no "),
    "early success": ("import os\nos._exit(0)", "stopped early"),
    "output flood": ("while True:\n    print('x' * 10**6)", "timeout"),
    "a lie about equality": (
        "class Any:\n    def __eq__(self, other):\n        raise SystemExit(0)\n"
        "def add(x):\n    return Any()",
        "AssertionError",
    ),
}


def test_what_a_response_tries_ends_in_a_mark_of_zero(data: Path) -> None:
    bench = open_benchmark("mbpp", data, allow_code=True)
    assert isinstance(bench, CodeBenchmark)
    bench.timeout_s = 1.0
    item = bench.generate("test", 0)
    working = "def add(x):\n  return x + 11\n"  # every attack comes with a solution that would pass
    texts = [f"{working}{code}" for code, _ in ATTACKS.values()]
    began = time.monotonic()
    verdicts = dict(zip(ATTACKS, bench.judge_many([item] * len(texts), texts, 4), strict=True))
    assert {name for name, verdict in verdicts.items() if any(verdict.marks.values())} == set()
    for name, (_, reason) in ATTACKS.items():
        assert reason in verdicts[name].found["strict"], name
    assert time.monotonic() - began < 30 and bench.score(item, working)
