"""What Linux offers against a program that nobody has read; each wall goes up where the kernel permits it.

All of it runs in the sandbox's own fresh process, before anything of the program is read. It needs no rights:
user namespaces, Landlock and seccomp are there for ordinary users. A wall that the kernel refuses is reported
with its reason, and the others stand without it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys

import ripple.tasks.sandbox.seccomp as seccomp

TYPE_CHECKING = False  # a sandbox starts for every program: nothing is imported for types alone
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SYSTEM_FILES = (
    "/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo",
    "/dev/null", "/dev/urandom",
)  # fmt: skip

_NEW_MOUNTS, _NEW_IPC, _NEW_USER, _NEW_PIDS, _NEW_NET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_MNT_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SIGKILL = 1, 22, 38, 9
# system calls without a function in libc, on x86_64 and aarch64
_NUMBERS = {"x86_64": (155, 126), "aarch64": (41, 91)} if sys.platform == "linux" else {}
_PIVOT_ROOT, _CAPSET = _NUMBERS.get(os.uname().machine, (0, 0))
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3

_libc = ctypes.CDLL(None, use_errno=True)


def readable_files() -> list[str]:
    """Return what a program may read: the interpreter's library and the system's shared libraries."""
    own = [path for path in sys.path if os.path.isabs(path)]
    paths = [path for path in (*SYSTEM_FILES, *own, f"{sys.base_prefix}/lib") if os.path.exists(path)]
    return [path for path in dict.fromkeys(paths) if not any(path.startswith(f"{up}/") for up in paths)]


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it ends."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)


def set_limits(cpu_s: int, memory_mb: int) -> None:
    """Bound what this process and its child may use, without a way back."""
    for limit, value in (
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_AS, memory_mb << 20),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 32),
        (resource.RLIMIT_CORE, 0),
    ):
        try:
            resource.setrlimit(limit, (value, value))
        except (ValueError, OSError):  # macOS has no limit on address space
            continue


def forbid_processes() -> None:
    """Let this process start no other one; root outside a user namespace is exempt from this limit."""
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def enter_namespaces(folder: str) -> str:
    """Leave users, mounts, network, IPC and (from the next fork on) processes; "" or why not."""
    if not _PIVOT_ROOT:
        return f"no numbers of system calls for {sys.platform} on {os.uname().machine}"
    files, uid, gid = readable_files(), os.getuid(), os.getgid()

    def enter() -> None:
        _check(_libc.unshare(_NEW_USER | _NEW_MOUNTS | _NEW_NET | _NEW_IPC | _NEW_PIDS), "unshare")
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as stream:
                stream.write(text)
        _replace_root(folder, files)
        # version 3, this process; effective, permitted, inheritable: nothing
        _check(_libc.syscall(_CAPSET, struct.pack("Ii", 0x20080522, 0), bytes(24)), "capset")

    return _attempt(enter)


def _replace_root(folder: str, files: Sequence[str]) -> None:
    """Make an empty read-only file system the root, with nothing in it but the given files, read-only."""
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, "size=64k,mode=755")
    for path in files:
        inside = folder + path
        os.makedirs(os.path.dirname(inside), exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), inside)
            continue
        if os.path.isdir(path):
            os.mkdir(inside)
        else:
            os.close(os.open(inside, os.O_CREAT | os.O_WRONLY))
        _mount(path, inside, None, _MS_BIND | _MS_REC)
        # What the outer mount forbids must be repeated: an inner one may not allow it again.
        kept = os.statvfs(path).f_flag & (_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
        _mount("none", inside, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept)
    os.chdir(folder)
    _check(_libc.syscall(_PIVOT_ROOT, b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", _MNT_DETACH), "umount2")
    os.chdir("/")
    _mount("none", "/", None, _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def restrict_files() -> str:
    """Let Landlock refuse all files but the readable, TCP, and signals to the outside; "" or why not."""
    if sys.platform != "linux":
        return "not Linux"

    def restrict() -> None:
        version = _check(_libc.syscall(_LANDLOCK_CREATE, None, 0, 1), "landlock")
        files = (1 << (13 + (version > 1) + (version > 2) + (version > 4))) - 1  # every right of the version
        network, scopes = (3 if version > 3 else 0), (3 if version > 5 else 0)
        rules = struct.pack("QQQ", files, network, scopes)[: 24 if version > 5 else 16 if version > 3 else 8]
        ruleset = _check(_libc.syscall(_LANDLOCK_CREATE, rules, len(rules), 0), "landlock_create_ruleset")
        for path in readable_files():
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rights = _READ_FILE | (_READ_DIR if os.path.isdir(path) else 0)
            rule = struct.pack("=Qi", rights, handle)
            _check(_libc.syscall(_LANDLOCK_ADD, ruleset, 1, rule, 0), "landlock_add_rule")
            os.close(handle)
        _forbid_new_rights()
        _check(_libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0), "landlock_restrict_self")
        os.close(ruleset)

    return _attempt(restrict)


def filter_calls() -> str:
    """Let seccomp refuse every system call that is not known to be harmless; "" or why not."""
    machine = os.uname().machine
    if sys.platform != "linux" or not seccomp.known(machine):
        return f"no filter for {sys.platform} on {machine}"

    def install() -> None:
        code = seccomp.program(machine)
        buffer = ctypes.create_string_buffer(code, len(code))
        program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))  # struct sock_fprog
        _forbid_new_rights()
        _check(_libc.prctl(_PR_SET_SECCOMP, 2, program, 0, 0), "seccomp")

    return _attempt(install)


def _forbid_new_rights() -> None:
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    encoded = kind.encode() if kind else None
    done = _libc.mount(
        source.encode(), target.encode(), encoded, ctypes.c_ulong(flags), options.encode() or None
    )
    _check(done, f"mount {target}")


def _check(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _attempt(action: Callable[[], None]) -> str:
    try:
        action()
    except (OSError, AttributeError) as error:
        return str(error)
    return ""
