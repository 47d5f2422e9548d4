"""Errors in one sentence: bad input, packages that are not installed, and what nobody foresaw."""

from __future__ import annotations

import re
from importlib import metadata

from ripple.errors import RippleError
from ripple.view import visible

DISTRIBUTION = "ripple-dllm"


def sentence(error: Exception, command: str, debug: bool = False) -> str:
    """Return what is said of an error that ended a subcommand; no terminal obeys what it holds."""
    text = visible(" ".join(str(error).splitlines()))
    if isinstance(error, RippleError):
        return text
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("ripple"):
        return _missing(error.name.partition(".")[0], command)
    where = f" in {visible(command)}" if command else ""
    what = f": {text.rstrip('.')}" if text else ""
    again = "" if debug else " Run again with --debug for the traceback."
    return f"{type(error).__name__}{where}{what}.{again}"


def _missing(package: str, command: str) -> str:
    """Say which package is missing and how to install it."""
    extra = extra_of(package)
    wanted = f"'{DISTRIBUTION}[{extra}]'" if extra else package
    who = f"{command} needs" if command else "This needs"
    return f"{visible(who)} the package {package}: pip install {wanted}."


def extra_of(package: str) -> str | None:
    """Return the extra of Ripple that installs a package, if one does."""
    try:
        requirements = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # run from a folder of sources
        return None
    for line in requirements:
        match = re.match(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"]", line)
        if match and match[2] != "dev" and _plain(match[1]) == _plain(package):
            return match[2]
    return None


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
