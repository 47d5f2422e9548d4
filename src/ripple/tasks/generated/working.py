"""What an exercise is, and how one step of its working is said in several ways."""

from __future__ import annotations

from dataclasses import dataclass

Ways = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exercise:
    """One exercise, before a phrasing is chosen."""

    asks: Ways
    steps: tuple[Ways, ...]
    answer: int


def ways(line: str, *reasons: str) -> Ways:
    """Return a line alone and with each of its reasons, before or after it."""
    out = [f"{line}."]
    for reason in reasons:
        out += [f"{reason[0].upper()}{reason[1:]}: {line}.", f"We {reason}, so {line}."]
    return tuple(out)


def signed(n: int) -> str:
    """Return `+ 3` or `- 3`."""
    return f"+ {n}" if n >= 0 else f"- {-n}"
