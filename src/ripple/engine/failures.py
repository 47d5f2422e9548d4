"""What a failing part says in the error of its request."""

from __future__ import annotations

import threading

from ripple.errors import RippleError


def named(error: BaseException) -> str:
    """Return an exception's type and the first line of its text."""
    try:
        first_line = (str(error).splitlines() or [""])[0]
    except Exception:  # its own __str__ fails
        first_line = ""
    return f"{type(error).__name__}: {first_line}".rstrip(": .")


def is_interrupt(error: BaseException) -> bool:
    """Whether this is the user's Ctrl-C, which reaches the main thread alone, and not a part's own doing."""
    is_main = threading.current_thread() is threading.main_thread()
    return isinstance(error, KeyboardInterrupt) and is_main


def of_forward(error: Exception) -> str:
    """Return why a forward failed as part of a sentence."""
    return str(error) if isinstance(error, ArithmeticError) else f"the forward failed: {named(error)}"


def of_decoder(error: BaseException) -> str:
    """Return what a decoder did wrong as part of a sentence."""
    if isinstance(error, RippleError):
        return str(error).rstrip(".")
    return f"the decoder raised {named(error)}"


def of_layout(error: Exception) -> str:
    """Return why an ask could not be laid out as part of a sentence."""
    if isinstance(error, RippleError):
        return str(error).rstrip(".")
    return f"laying out its ask raised {named(error)}"


def of_cache(name: str, error: Exception) -> str:
    """Return what a cache policy did wrong as part of a sentence."""
    if isinstance(error, RippleError):
        return f"the cache {name!r}: {str(error).rstrip('.')}"
    return f"the cache {name!r} raised {named(error)}"
