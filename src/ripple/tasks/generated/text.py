"""Small helpers for the text families: phrasing a step in one of several ways, and reading answers back."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from fractions import Fraction

# Each solution step is said in one of these ways, so that a prompt does not determine its solution's text.
STEP_FORMS = (
    "{What} is {expr} = {value}.",
    "{What}: {expr} = {value}.",
    "To get {what}, compute {expr} = {value}.",
    "We have {expr} = {value}, which is {what}.",
    "{expr} = {value} gives {what}.",
    "Now {what} comes to {expr} = {value}.",
    "So {what} equals {expr} = {value}.",
)
OPENINGS = ("", "", "", "Step by step.\n", "Let us work it out.\n", "Solution:\n")

_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:\s*/\s*\d+)?")


def step(rng: random.Random, labels: Sequence[str], expr: str, value: int) -> str:
    """Return one solution step, in one of several phrasings."""
    what = rng.choice(labels)
    form = rng.choice(STEP_FORMS)
    return form.format(what=what, What=what[0].upper() + what[1:], expr=expr, value=value)


def number(text: str) -> Fraction | None:
    """Return the number that a short text opens with (`1,234`, `-5`, `7.50`, `3/4`, `$12`), or None."""
    match = _NUMBER.match(text.strip().lstrip("$ ").strip())
    if match is None:
        return None
    body = match.group().replace(",", "").replace(" ", "").lstrip("+")
    try:
        return Fraction(body)
    except (ValueError, ZeroDivisionError):
        return None


def listed(words: str) -> tuple[str, ...]:
    """Return the words of a line, in order."""
    return tuple(words.split())


def plural(count: int, noun: str) -> str:
    """Return `1 pen` or `3 pens` for a noun given in the plural."""
    return f"{count} {singular(noun)}" if count == 1 else f"{count} {noun}"


def singular(noun: str) -> str:
    """Return the singular of the regular plurals used here."""
    if noun.endswith("ies"):
        return noun[:-3] + "y"
    if noun.endswith(("ches", "shes", "xes")):
        return noun[:-2]
    return noun[:-1]
