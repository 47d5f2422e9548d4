"""The error types that users meet, and the sentence that names the nearest valid choice."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable
from typing import Any

LONGEST = 2000  # characters of a sentence, whatever it quotes
LONGEST_NAME = 80  # characters of a name that anybody may have meant


class RippleError(ValueError):
    """Bad input, said in one sentence: what was wrong and what is allowed."""

    def __init__(self, sentence: str = "") -> None:
        super().__init__(one_sentence(sentence))


def one_sentence(text: str) -> str:
    """Return a sentence as any terminal may print it: one line, no control characters, not too long."""
    text = " ".join(text.splitlines())
    if len(text) > LONGEST:
        half = LONGEST // 2 - 3
        text = f"{text[:half]} ... {text[-half:]}"
    escaped = (ascii(c)[1:-1] if unicodedata.category(c)[0] == "C" else c for c in text)
    return text if text.isprintable() else "".join(escaped)


class WorkFailed(RippleError):
    """The input was fine; what failed is the work on it. The command line's exit code is 1, not 2."""


class RequestError(WorkFailed):
    """A request that failed while it was decoded; its neighbours go on.

    The sentence names the request, the decoder and the forward. An exception that caused it is `__cause__`.
    When it was decoded with others by `generate`, `results` holds the outcomes of all of them, in their
    order. `what` is the sentence without the request's number, which differs from run to run.
    """

    results: list[Any] | None = None
    what = ""


class QueueFull(RippleError):
    """The engine's queue is at its limit; try again when requests have finished."""


class EngineStopped(WorkFailed):
    """The thread that runs the engine has ended and takes no more requests."""


def unknown(kind: str, name: object, known: Iterable[str]) -> RippleError:
    """Return the error for a name that is not known, with the nearest known one."""
    names = sorted(known)
    close = nearest(str(name), names)
    hint = f" Did you mean {close!r}?" if close else ""
    return RippleError(f"Unknown {kind} {str(name)!r}.{hint} Known: {', '.join(names)}.")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like another, if one is; longer names would take too long."""
    close = difflib.get_close_matches(name[:LONGEST_NAME], known, n=1, cutoff=0.5)
    return close[0] if close else None
