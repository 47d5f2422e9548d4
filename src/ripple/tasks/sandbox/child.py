"""What runs in the sandbox: a judge and, in a process of its own, the program that nobody has read.

The judge raises the walls, forks, and only then reads the tests: the program's process has never held them.
It has two pipes to the judge, and nothing of the parent's; the verdict is the judge's.
"""

from __future__ import annotations

import builtins
import importlib
import math
import os
import sys

import ripple.tasks.sandbox.hook as hook
import ripple.tasks.sandbox.walls as walls
from ripple.tasks.sandbox.calls import OPERATIONS, Peer, ProgramEnded
from ripple.tasks.sandbox.wire import ValueReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any, NoReturn

_AT_THE_LIMIT = (9, 24)  # SIGKILL and SIGXCPU: how the kernel ends what has used up its processor time


def main() -> None:
    """Read a program and its tests from standard input, and write the verdict to standard output."""
    timeout_s, memory_mb, names = sys.argv[1:]
    walls.die_with_parent()
    said, given, null = os.dup(1), os.dup(0), os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    if "namespaces" in names:
        walls.enter_namespaces(os.getcwd())
    if "landlock" in names:
        walls.restrict_files()
    walls.set_limits(math.ceil(float(timeout_s)), int(memory_mb))
    questions, answers = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        for fd in (said, given, questions[1], answers[0]):
            os.close(fd)
        _run_program(questions[0], answers[1], names)
    os.close(questions[0])
    os.close(answers[1])
    if "seccomp" in names:
        walls.filter_calls()
    with open(given, "rb") as stream:
        code, tests, asked = ValueReader(lambda kind, number: None).decode(stream.read())
    peer = Peer(answers[0], questions[1])
    verdict = _judge(peer, code, tests, asked)
    peer.close()
    _, status = os.waitpid(child, 0)  # nothing of the program is left when its verdict is known
    if peer.ended:  # whatever the tests made of it
        late = os.WIFSIGNALED(status) and os.WTERMSIG(status) in _AT_THE_LIMIT
        verdict = "timeout" if late else "stopped early"
    os.write(said, verdict.encode("utf-8", "replace"))
    os._exit(0)


def report() -> None:
    """Write a line for each wall that the system refuses: its name and the reason."""
    refused = {
        "namespaces": walls.enter_namespaces(os.getcwd()),
        "landlock": walls.restrict_files(),
        "seccomp": walls.filter_calls(),
    }
    os.write(1, "".join(f"{name}: {reason}\n" for name, reason in refused.items() if reason).encode())


def _judge(peer: Peer, code: str, tests: str, asked: Collection[str]) -> str:
    """Have the program run, run its tests here, and return how that ended."""
    try:
        peer.ask("run", code)
        exec(compile(tests, "tests", "exec"), _Names(peer, asked))
    except MemoryError:
        return "MemoryError"
    except ProgramEnded:
        return "stopped early"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:150]}".replace("\n", " ")
    return "ok"


class _Names(dict[str, "Any"]):
    """The names that tests see: their own, builtins, and then what the program defines."""

    def __init__(self, peer: Peer, asked: Collection[str]):
        super().__init__(__name__="tests")
        self._peer, self._asked = peer, asked

    def __missing__(self, name: str) -> Any:
        # A program may put no `sorted` or `math` of its own under the tests, unless it was asked for one.
        is_ours = name not in self._asked
        if is_ours and hasattr(builtins, name):
            raise KeyError(name)
        how, value = self._peer.ask("global", name)
        if how != "missing" and is_ours and name in sys.stdlib_module_names:
            value = importlib.import_module(name)
        elif how != "value":
            raise KeyError(name)
        self[name] = value
        return value


def _run_program(reader: int, writer: int, names: str) -> NoReturn:
    """Run a program in this process, and then whatever the tests ask of it."""
    namespace: dict[str, Any] = {"__name__": "__main__"}

    def run(code: str) -> None:
        exec(compile(code, "program", "exec"), namespace)

    def look_up(name: str) -> tuple[str, Any]:
        if name not in namespace:
            return "missing", None
        value = namespace[name]
        return ("module", None) if type(value) is type(sys) else ("value", value)

    peer = Peer(reader, writer, {**OPERATIONS, "run": run, "global": look_up})
    walls.die_with_parent()
    walls.forbid_processes()
    if "seccomp" in names:
        walls.filter_calls()
    leave = os._exit
    if "hook" in names:
        hook.guard()
    try:
        peer.serve()
    finally:
        leave(0)
