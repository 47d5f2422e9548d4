"""Memory that was freed goes back to the system; the C library would keep it for a busier time."""

from __future__ import annotations

import asyncio
import ctypes
import functools
from collections.abc import Callable

QUIET_S = 0.5  # without requests, before memory is given back


@functools.cache
def trim() -> Callable[[int], int] | None:
    """Return glibc's `malloc_trim`; other C libraries have none."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None


class GiveBack:
    """Gives memory back when there has been nothing to do for a moment."""

    def __init__(self, is_busy: Callable[[], bool]) -> None:
        self._is_busy = is_busy
        self._timer: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        """Have it done, unless there is something to do then; whoever ends the last request calls again."""
        if self._timer is None and trim() is not None:
            self._timer = asyncio.get_running_loop().call_later(QUIET_S, self._now)

    def _now(self) -> None:
        self._timer = None
        give = trim()
        if give is not None and not self._is_busy():
            asyncio.get_running_loop().run_in_executor(None, give, 0)  # without the interpreter's lock
