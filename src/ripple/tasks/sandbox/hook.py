"""The wall inside the interpreter: an audit hook that says in a word what a program may not do.

A program that attacks Python itself can remove this hook; where the system's walls stand, it gains nothing.
"""

from __future__ import annotations

import os
import sys

_EVENTS = (
    "socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.kill",
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "os.chown",
    "os.truncate", "os.utime", "os.chflags", "os.setxattr", "os.removexattr", "os.chdir", "shutil.",
    "ctypes.", "pty.", "fcntl.", "_thread.", "signal.", "resource.", "webbrowser.", "urllib.", "http.",
    "ftplib.", "smtplib.", "tempfile.", "sqlite3.",
)  # fmt: skip
_MODULES = frozenset(
    ("ctypes", "_ctypes", "_posixsubprocess", "multiprocessing", "_multiprocessing", "_posixshmem", "_socket")
)
# Functions that change something outside without an audit event of their own.
_SILENT = (
    "mkfifo",
    "mknod",
    "setpriority",
    "nice",
    "sched_setaffinity",
    "sched_setscheduler",
    "sched_setparam",
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def guard() -> None:
    """Refuse sockets, processes, threads, signals, writing and ctypes from here on."""
    for name in _SILENT:
        if hasattr(os, name):
            delattr(os, name)
        if hasattr(sys.modules["posix"], name):
            delattr(sys.modules["posix"], name)
    for name in _MODULES:  # the walls were built with some of them
        sys.modules.pop(name, None)
    sys.addaudithook(_refuse)


def _refuse(
    event: str,
    args: tuple[object, ...],
    # Bound here, where the program does not reach them by name.
    events: tuple[str, ...] = _EVENTS,
    modules: frozenset[str] = _MODULES,
    writing: int = _WRITING,
    isinstance: type[object] | object = isinstance,
) -> None:
    if event == "open":
        mode, flags = args[1], args[2]
        by_mode = mode.__class__ is str and not set("wax+").isdisjoint(mode)
        if by_mode or (flags.__class__ is int and flags & writing):
            raise PermissionError("sandbox: no writing")
    elif event == "import":
        if args[0] in modules:
            raise PermissionError(f"sandbox: no {args[0]}")
    elif event.startswith(events):
        raise PermissionError(f"sandbox: no {event}")
