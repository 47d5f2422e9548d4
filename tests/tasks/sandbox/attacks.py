"""Attacks on what is outside a sandbox: each with the walls that stop it, every one of them on its own.

An attack passes (it reaches its end) only if it got what it wanted. `FOLDER` is a folder of the user's with
a file `kept` and a journal `base-journal`, `VICTIM` a process of the user's, `PORT` a listening socket.
"""

from __future__ import annotations

import platform

NAMESPACES, LANDLOCK, SECCOMP = "namespaces", "landlock", "seccomp"
ALL = (NAMESPACES, LANDLOCK, SECCOMP)
LIBC = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
X86 = platform.machine() == "x86_64"
CLONE, BPF, OPENAT, ADD_KEY = (56, 321, 257, 248) if X86 else (220, 280, 56, 217)
CHECKED = "if done < 0:\n    raise OSError(ctypes.get_errno(), 'refused')\n"

# name -> (code, the walls that stop it)
FILES: dict[str, tuple[str, tuple[str, ...]]] = {
    "open for writing": ("open(FOLDER + '/new', 'w')", ALL),
    "open for appending": ("open(FOLDER + '/kept', 'a').write('x')", ALL),
    "create through a descriptor": ("import os\nos.open(FOLDER + '/new', os.O_CREAT)", ALL),
    "an unnamed file": ("import os\nos.open(FOLDER, os.O_TMPFILE | os.O_RDWR)", ALL),
    "mknod": ("import os\nos.mknod(FOLDER + '/new')", ALL),
    "mkfifo": ("import os\nos.mkfifo(FOLDER + '/new')", ALL),
    "mkdir": ("import os\nos.mkdir(FOLDER + '/new')", ALL),
    "a socket in the file system": (
        "import _socket\n_socket.socket(_socket.AF_UNIX).bind(FOLDER + '/new')",
        ALL,
    ),
    "sqlite3 creates its file": ("import sqlite3\nsqlite3.connect(FOLDER + '/new')", ALL),
    "sqlite3 deletes a journal": (
        "import sqlite3\nsqlite3.connect(FOLDER + '/base').execute('select * from sqlite_master')",
        ALL,
    ),
    "shared memory": (
        "import os, _posixshmem\n_posixshmem.shm_open('/' + NAME, os.O_CREAT | os.O_RDWR, 0o600)",
        ALL,
    ),
    "truncate": ("import os\nos.truncate(FOLDER + '/kept', 0)", ALL),
    "remove": ("import os\nos.remove(FOLDER + '/kept')", ALL),
    "rename": ("import os\nos.rename(FOLDER + '/kept', FOLDER + '/new')", ALL),
    "symbolic link": ("import os\nos.symlink('/', FOLDER + '/new')", ALL),
    "hard link": ("import os\nos.link(FOLDER + '/kept', FOLDER + '/new')", ALL),
    "chmod": ("import os\nos.chmod(FOLDER + '/kept', 0o777)", (NAMESPACES, SECCOMP)),
    "utime": ("import os\nos.utime(FOLDER + '/kept', (1, 1))", (NAMESPACES, SECCOMP)),
    "extended attribute": (
        "import os\nos.setxattr(FOLDER + '/kept', 'user.x', b'x')",
        (NAMESPACES, SECCOMP),
    ),
    "open through libc": (
        LIBC + "done = libc.open((FOLDER + '/new').encode(), 0o101, 0o600)\n" + CHECKED,
        ALL,
    ),
    "open with flags beyond 32 bits": (
        LIBC + "name, flags = (FOLDER + '/new').encode(), ctypes.c_ulong(1 << 32 | 0o101)\n"
        f"done = libc.syscall({OPENAT}, -100, name, flags, 0o600)\n" + CHECKED,
        ALL,
    ),
    "openat2": (
        LIBC + "import struct\nhow = struct.pack('QQQ', 0o101, 0o600, 0)\n"
        "done = libc.syscall(437, -100, (FOLDER + '/new').encode(), how, 24)\n" + CHECKED,
        ALL,
    ),
    "write into the interpreter's library": (
        "import os, sys\nopen(os.path.dirname(os.__file__) + '/' + NAME + '.py', 'w')",
        ALL,
    ),
}

SECRETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "read a file of the user": ("assert open(FOLDER + '/kept').read()", (NAMESPACES, LANDLOCK)),
    "list a folder of the user": ("import os\nassert os.listdir(FOLDER)", (NAMESPACES, LANDLOCK)),
    "the environment": ("import os\nassert 'RIPPLE_SECRET' in os.environ", ()),
    "the parent's environment": (
        "assert b'PATH' in open(f'/proc/{PARENT}/environ', 'rb').read()",
        (NAMESPACES, LANDLOCK),
    ),
    "the environment of a process of the user": (
        "assert b'RIPPLE_SECRET' in open(f'/proc/{VICTIM}/environ', 'rb').read()",
        (NAMESPACES, LANDLOCK),
    ),
    "the command lines of everybody": (
        "import os\nassert open(f'/proc/{VICTIM}/cmdline').read()",
        (NAMESPACES, LANDLOCK),
    ),
    "the parent's memory": ("open(f'/proc/{PARENT}/mem', 'rb').read(0)", (NAMESPACES, LANDLOCK)),
    "the judge's memory, with the tests": (
        "import os\nopen(f'/proc/{os.getppid()}/mem', 'rb').read(0)",
        (NAMESPACES, LANDLOCK),
    ),
    "whether a file of the user is there": (
        "import os\nassert os.access(FOLDER + '/kept', os.F_OK)",
        (NAMESPACES,),
    ),
    "the parent's memory by system call": (
        LIBC + "import struct\nhere = ctypes.create_string_buffer(8)\n"
        "mine = struct.pack('QQ', ctypes.addressof(here), 8)\n"
        "done = libc.process_vm_readv(PARENT, mine, 1, struct.pack('QQ', ADDRESS, 8), 1, 0)\n" + CHECKED,
        ALL,
    ),
    "attach as a debugger": (LIBC + "done = libc.ptrace(16, VICTIM, 0, 0)\n" + CHECKED, ALL),
    "an inherited descriptor": (
        "import os\nfound = []\nfor fd in range(3, 64):\n    try:\n        os.lseek(fd, 0, 1)\n"
        "        found.append(fd)\n    except OSError:\n        pass\nassert found",
        (),
    ),
}

PROCESSES: dict[str, tuple[str, tuple[str, ...]]] = {
    "fork": ("import os\nif os.fork() == 0:\n    os._exit(0)", (SECCOMP,)),
    "fork bomb": ("import os\nwhile True:\n    os.fork()", (SECCOMP,)),
    "vfork and clone through libc": (
        LIBC + f"done = libc.syscall({CLONE}, 17, 0, 0, 0, 0)\n" + CHECKED,
        (SECCOMP,),
    ),
    "clone3": (
        LIBC
        + "import struct\nhow = ctypes.create_string_buffer(struct.pack('8Q', 0, 0, 0, 0, 17, 0, 0, 0))\n"
        "done = libc.syscall(435, how, 64)\n" + CHECKED,
        (SECCOMP,),
    ),
    "outlive the judge": (LIBC + "done = libc.prctl(1, 0, 0, 0, 0)\n" + CHECKED, (SECCOMP,)),
    "another program": ("import subprocess\nsubprocess.run(['true'], check=True)", (LANDLOCK, SECCOMP)),
    "another program without subprocess": (
        "import os\nassert os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)[1] == 0",
        (NAMESPACES, LANDLOCK, SECCOMP),
    ),
    "become another program": ("import os\nos.execv('/bin/true', ['true'])", ALL),
    "a thread": ("import _thread\n_thread.start_new_thread(print, ())", (SECCOMP,)),
    "kill the parent": ("import os\nos.kill(PARENT, 0)", ALL),
    "kill a process of the user": ("import os\nos.kill(VICTIM, 9)", ALL),
    "kill everybody": (LIBC + "done = libc.kill(-1, 0)\n" + CHECKED, (NAMESPACES, SECCOMP)),
    "kill through a process descriptor": (
        "import os, signal\nsignal.pidfd_send_signal(os.pidfd_open(VICTIM), 9)",
        ALL,
    ),
    "signal through a descriptor's owner": (
        "import fcntl, os\nr, w = os.pipe()\nfcntl.fcntl(r, fcntl.F_SETOWN, VICTIM)",
        (NAMESPACES, SECCOMP),
    ),
    "priority of a process of the user": (
        "import os\nos.setpriority(os.PRIO_PROCESS, VICTIM, 19)",
        (NAMESPACES, SECCOMP),
    ),
    "processors of a process of the user": (
        "import os\nos.sched_setaffinity(VICTIM, {0})",
        (NAMESPACES, SECCOMP),
    ),
    "limits of a process of the user": (
        "import resource\nresource.prlimit(VICTIM, resource.RLIMIT_CORE, (0, 0))",
        (NAMESPACES, SECCOMP),
    ),
}

NETWORK: dict[str, tuple[str, tuple[str, ...]]] = {
    "connect": (
        "import socket\nsocket.create_connection(('127.0.0.1', PORT), 1)",
        (NAMESPACES, LANDLOCK, SECCOMP),
    ),
    "send a datagram": (
        "import socket\nsocket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))",
        (NAMESPACES, SECCOMP),
    ),
    "listen": (
        "import socket\ns = socket.create_server(('127.0.0.1', 0))\ns.listen()",
        (LANDLOCK, SECCOMP),
    ),
    "an abstract socket": (
        "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0' + NAME)",
        ALL,
    ),
}

KERNEL: dict[str, tuple[str, tuple[str, ...]]] = {
    "a namespace with new rights": (LIBC + "done = libc.unshare(0x10000000)\n" + CHECKED, (SECCOMP,)),
    "mount": (LIBC + "done = libc.mount(b'none', b'/', None, 1 << 18, None)\n" + CHECKED, ALL),
    "remount for writing": (LIBC + "done = libc.mount(b'none', b'/', None, 32, None)\n" + CHECKED, ALL),
    "chroot": ("import os\nos.chroot('/')", (NAMESPACES, SECCOMP)),
    "raise a limit again": (
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))",
        (NAMESPACES, SECCOMP),
    ),
    "io_uring": (
        LIBC + "done = libc.syscall(425, 1, ctypes.create_string_buffer(120))\n" + CHECKED,
        (SECCOMP,),
    ),
    "bpf": (
        LIBC + f"done = libc.syscall({BPF}, 0, ctypes.create_string_buffer(128), 128)\n" + CHECKED,
        (SECCOMP,),
    ),
    "System V shared memory, which outlives everybody": (
        LIBC + "done = libc.shmget(0x5249, 4096, 0o1600)\n" + CHECKED,
        (SECCOMP,),
    ),
    "a key in the kernel's keyring": (
        LIBC + f"done = libc.syscall({ADD_KEY}, b'user', b'ripple', b'x', 1, -3)\n" + CHECKED,
        (SECCOMP,),
    ),
    "a call under its x32 number": (
        LIBC + "done = libc.syscall(0x40000000 + 57)\n" + CHECKED,
        (SECCOMP,),
    ),
}
if X86:  # mov eax, 2; int 0x80; ret
    KERNEL["a fork by the interrupt of 32-bit programs"] = (
        LIBC + "import mmap\ncode = mmap.mmap(-1, 4096, prot=7)\n"
        "code.write(bytes.fromhex('b802000000cd80c3'))\n"
        "done = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()\n"
        + CHECKED,
        (SECCOMP,),
    )
OUTSIDE = {**FILES, **SECRETS, **PROCESSES, **NETWORK, **KERNEL}
