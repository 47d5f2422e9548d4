"""How much memory this machine can still give, caches of files included, which it would drop."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")  # of this process, as a container sees it


def available_bytes() -> float:
    """Return what could be allocated without swapping; infinity where the system does not say."""
    return min(_of_machine(), _of_container())


def _of_machine() -> float:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    with contextlib.suppress(OSError, ValueError):  # not Linux: free pages alone
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return math.inf


def _of_container() -> float:
    """Return what a limit on this container leaves: the limit, less what is in use and no cache of a file."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        most = float((CGROUP / "memory.max").read_text())  # "max": no limit
        stat = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        used = float((CGROUP / "memory.current").read_text()) - float(stat["file"])
        return max(0.0, most - used)
    return math.inf
