"""The process behind `ripple` and `python -m ripple`: runs the command line and takes care of Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # typing.TYPE_CHECKING, without the cost of importing typing
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

INTERRUPTED = 130  # exit code after Ctrl-C
AGAIN_S = 0.002


def start() -> int:
    """Run the command line of this process and return its exit code."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a background job ignores it
    if is_ours:
        signal.signal(signal.SIGINT, _leave)
    from ripple.cli import main

    if is_ours:
        signal.signal(signal.SIGALRM, _interrupt)
        signal.signal(signal.SIGINT, _interrupt)
    try:
        return main()
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, _leave)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End at once: before and after the work there is nothing to clean up."""
    os._exit(INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but never inside an import: packages written in C lose it there.

    What is being imported is finished first; a timer asks again until it is. A second Ctrl-C does not wait.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            if number == signal.SIGINT and any(signal.getitimer(signal.ITIMER_REAL)):
                _leave(number, frame)
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
            return
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(start())
