"""The source that a sandboxed interpreter runs before the program: limits, audit hook, verdict."""

from __future__ import annotations

PRELUDE = r"""
import os, sys, resource

def _enter():
    said = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    with open(0, "rb", closefd=False) as stream:
        head, source = stream.read().split(b"\n", 1)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    token, timeout_s, memory_mb = head.decode().split()
    cpu, memory = int(float(timeout_s) + 0.999), int(memory_mb) << 20
    # Leaving the user namespace takes away root's exemption from the process limit; both may be forbidden.
    user_and_net, net = 0x50000000, 0x40000000
    for flags in (user_and_net, net):
        try:
            if hasattr(os, "unshare"):
                os.unshare(flags)
            else:
                import ctypes
                if ctypes.CDLL(None).unshare(flags) != 0:
                    continue
            break
        except (OSError, ImportError, AttributeError):
            continue
    for limit, value in (
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_NPROC, 1),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 32),
        (resource.RLIMIT_CORE, 0),
    ):
        try:
            # At the soft limit of CPU time comes SIGXCPU, at the hard one SIGKILL.
            resource.setrlimit(limit, (value, value + (limit == resource.RLIMIT_CPU)))
        except (ValueError, OSError):
            pass
    return said, token, source.decode("utf-8", "replace")

def _guard():
    refused = (
        "socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn",
        "os.kill", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink",
        "os.chmod", "os.chown", "os.truncate", "os.utime", "os.chflags", "os.setxattr",
        "os.removexattr", "os.chdir", "shutil.", "ctypes.", "pty.", "fcntl.", "_thread.", "signal.",
        "resource.", "webbrowser.", "urllib.", "http.", "ftplib.", "smtplib.", "tempfile.",
    )
    modules = {"ctypes", "_ctypes", "_posixsubprocess", "multiprocessing", "_multiprocessing", "_socket"}
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def hook(event, args):
        if event == "open":
            mode, flags = args[1], args[2]
            by_mode = isinstance(mode, str) and set(mode) & set("wax+")
            if by_mode or (isinstance(flags, int) and flags & writing):
                raise PermissionError("sandbox: no writing")
        elif event == "import":
            if args[0] in modules:
                raise PermissionError("sandbox: no " + args[0])
        elif event.startswith(refused):
            raise PermissionError("sandbox: no " + event)

    for name in modules:  # the module may have been used to enter the namespace
        sys.modules.pop(name, None)
    sys.addaudithook(hook)

def _main():
    said, token, source = _enter()
    write = os.write
    _guard()
    try:
        exec(compile(source, "program", "exec"), {"__name__": "__main__"})
        verdict = "ok"
    except MemoryError:
        verdict = "MemoryError"
    except SystemExit:
        verdict = "stopped early"
    except BaseException as error:
        verdict = (type(error).__name__ + ": " + str(error)[:150]).replace("\n", " ")
    try:
        write(said, (token + " " + verdict).encode("utf-8", "replace"))
    finally:
        os._exit(0)

_main()
"""
