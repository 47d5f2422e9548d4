"""The one error type that users meet, and the sentence that names the nearest valid choice."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RippleError(ValueError):
    """Bad input, said in one sentence: what was wrong and what is allowed."""


class QueueFull(RippleError):
    """The engine's waiting line is at its limit; try again when requests have finished."""


def unknown(kind: str, name: object, known: Iterable[str]) -> RippleError:
    """Return the error for a name that is not known, with the nearest known one."""
    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return RippleError(f"Unknown {kind} {str(name)!r}.{hint} Known: {', '.join(names)}.")
