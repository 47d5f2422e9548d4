"""The sandbox: correct programs pass, and nothing a program does by accident gets out or hangs."""

import socket
import time

import pytest

from ripple.tasks.sandbox import run, run_many


def test_a_correct_program_passes_and_a_wrong_one_says_why():
    assert run("def f(x):\n    return x + 1\nassert f(1) == 2").passed
    wrong = run("assert 1 + 1 == 3")
    assert not wrong.passed and wrong.reason.startswith("AssertionError")
    assert "SyntaxError" in run("def f(:").reason
    assert "RecursionError" in run("def f():\n    return f()\nf()").reason


def test_the_standard_library_can_be_used():
    assert run(
        "import math, re, collections, itertools, functools, string, heapq\nassert math.gcd(4, 6) == 2"
    ).passed


@pytest.mark.parametrize(
    "code",
    [
        "import sys\nsys.exit(0)",
        "import os\nos._exit(0)",
        "raise SystemExit",
        "quit = exit = None\nraise SystemExit(0)",
    ],
)
def test_leaving_before_the_tests_ran_is_no_pass(code):
    outcome = run(code + "\nassert False")
    assert not outcome.passed
    assert outcome.reason == "stopped early"


@pytest.mark.parametrize(
    "code",
    [
        "while True:\n    pass",
        "import time\ntime.sleep(60)",
        "9 ** 9 ** 9",
        "while True:\n    print('x' * 1000)",
    ],
)
def test_endless_programs_are_stopped_in_time(code):
    began = time.monotonic()
    outcome = run(code, timeout_s=1.0)
    assert not outcome.passed and outcome.reason == "timeout"
    assert time.monotonic() - began < 9


@pytest.mark.parametrize("code", ["x = []\nwhile True:\n    x.append('a' * 10**7)", "x = 'a' * 10**10"])
def test_memory_is_limited(code):
    assert run(code, memory_mb=256).reason == "MemoryError"


@pytest.mark.parametrize(
    "code",
    [
        "import os\nwhile True:\n    os.fork()",
        "import subprocess\nsubprocess.run(['ls'])",
        "import os\nos.system('ls')",
        "import os\nos.execv('/bin/ls', ['ls'])",
        "import multiprocessing",
        "import os\nos.kill(os.getppid(), 9)",
        "import ctypes",
    ],
)
def test_no_other_process_is_started_or_signalled(code):
    outcome = run(code)
    assert not outcome.passed and "sandbox: no" in outcome.reason


def test_nothing_is_written(tmp_path):
    target = tmp_path / "file"
    for code in (
        f"open({str(target)!r}, 'w')",
        f"import os\nos.open({str(target)!r}, os.O_WRONLY | os.O_CREAT)",
    ):
        assert "no writing" in run(code).reason
    assert not target.exists()
    kept = tmp_path / "kept"
    kept.write_text("x")
    assert not run(f"import os\nos.remove({str(kept)!r})").passed
    assert kept.exists()


def test_the_network_is_out_of_reach():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        outcome = run(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)")
    assert not outcome.passed and "sandbox: no" in outcome.reason


def test_a_flood_of_output_costs_nothing():
    assert run("for _ in range(100):\n    print('x' * 10**6)").passed


def test_the_environment_is_empty(monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_PARENT", "1")
    assert run("import os\nassert 'SECRET_OF_THE_PARENT' not in os.environ").passed


def test_many_programs_keep_their_order_and_equal_ones_run_once():
    programs = ["assert True", "assert False", "while True:\n    pass", "assert True"] * 2
    began = time.monotonic()
    outcomes = run_many(programs, workers=4, timeout_s=1.0)
    assert [o.passed for o in outcomes] == [True, False, False, True] * 2
    assert time.monotonic() - began < 9
    assert run_many([]) == []
