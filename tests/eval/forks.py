"""Real processes without new interpreters: a fork of this one that runs something and exits."""

from __future__ import annotations

import contextlib
import io
import os
import traceback
from collections.abc import Callable


def fork(work: Callable[[], object]) -> int:
    """Run `work` in a child process and return its id; the child exits with 0, or with 1 if it raised."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def wait(pid: int) -> int:
    """Wait for a child's end and return its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def is_alive(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
