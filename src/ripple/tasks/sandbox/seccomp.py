"""Which system calls a sandboxed program may make: a list of what is harmless, everything else is refused.

The filter is a classic BPF program over (number, architecture, six arguments). A refused call returns EPERM,
so a program sees an ordinary PermissionError. Numbers are those of Linux, per architecture.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# name -> numbers on x86_64 and aarch64; None where the architecture has no such call
_ALLOWED: dict[str, tuple[int | None, int | None]] = {
    # files that are open already
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62),
    "pread64": (17, 67), "readv": (19, 65), "writev": (20, 66), "dup": (32, 23), "dup2": (33, None),
    "dup3": (292, 24), "getdents64": (217, 61), "close_range": (436, 436),
    # looking at names; what is visible is up to the mount namespace and Landlock
    "stat": (4, None), "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291), "access": (21, None),
    "faccessat": (269, 48), "faccessat2": (439, 439), "readlink": (89, None), "readlinkat": (267, 78),
    "getcwd": (79, 17),
    # memory of its own
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216),
    "madvise": (28, 233),
    # signals of its own, waiting, time
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132), "restart_syscall": (219, 128), "poll": (7, None), "ppoll": (271, 73),
    "select": (23, None), "pselect6": (270, 72), "nanosleep": (35, 101), "clock_nanosleep": (230, 115),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "gettimeofday": (96, 169), "time": (201, None),
    "futex": (202, 98), "sched_yield": (24, 124),
    # questions about itself and the machine
    "getpid": (39, 172), "gettid": (186, 178), "getppid": (110, 173), "getuid": (102, 174),
    "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177), "uname": (63, 160),
    "sysinfo": (99, 179), "times": (100, 153), "getrusage": (98, 165), "sched_getaffinity": (204, 123),
    "getrandom": (318, 278),
    # the end, its own and that of its children
    "exit": (60, 93), "exit_group": (231, 94), "wait4": (61, 260),
}  # fmt: skip
# Calls of which some uses are harmless: name -> (numbers, index of the argument that decides).
_OPENAT, _FCNTL, _IOCTL = (257, 56), (72, 25), (16, 29)
_WRITING = 0o3 | 0o100 | 0o1000 | 0o2000 | 0o20000000  # WRONLY, RDWR; CREAT, TRUNC, APPEND; TMPFILE's own bit
_FCNTL_COMMANDS = (0, 1, 2, 3, 1030)  # duplicate, and read or set flags; not the owner of signals
_IOCTL_COMMANDS = (0x5401, 0x5450, 0x5451, 0x541B)  # is it a terminal, close on exec, bytes waiting

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # refuse: errno 1, EPERM
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data


def known(machine: str) -> bool:
    """Say whether there is a filter for this architecture."""
    return machine in _AUDIT_ARCH


def program(machine: str) -> bytes:
    """Return the filter as an array of struct sock_filter."""
    column = list(_AUDIT_ARCH).index(machine)
    code = [
        _op(_LOAD, _ARCH), _op(_EQUAL, _AUDIT_ARCH[machine], 1), _op(_RETURN, _KILL), _op(_LOAD, _NUMBER),
    ]  # fmt: skip
    for numbers in _ALLOWED.values():
        number = numbers[column]
        if number is not None:
            code += [_op(_EQUAL, number, 0, 1), _op(_RETURN, _ALLOW)]
    code += _when(_OPENAT[column], 2, [_op(_ANY_BIT, _WRITING, 0, 1), _op(_RETURN, _REFUSE)], _ALLOW)
    code += _when(_FCNTL[column], 1, _one_of(_FCNTL_COMMANDS), _REFUSE)
    code += _when(_IOCTL[column], 1, _one_of(_IOCTL_COMMANDS), _REFUSE)
    code.append(_op(_RETURN, _REFUSE))
    return b"".join(code)


def _op(code: int, k: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, k)


def _one_of(values: Iterable[int]) -> list[bytes]:
    """Allow the call if the loaded argument is one of the values."""
    return [op for value in values for op in (_op(_EQUAL, value, 0, 1), _op(_RETURN, _ALLOW))]


def _when(number: int, argument: int, checks: list[bytes], otherwise: int) -> list[bytes]:
    """Run checks on the low half of one argument of one call; `otherwise` is what happens after them."""
    body = [_op(_LOAD, _ARGUMENTS + 8 * argument), *checks, _op(_RETURN, otherwise)]
    return [_op(_EQUAL, number, 0, len(body)), *body]
