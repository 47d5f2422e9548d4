"""What a code problem is, and how it becomes the prompt of `functions` or of `programs`.

A problem is a specification (its key), a phrase that says it, several bodies that solve it, and inputs.
All bodies of a problem agree on all its inputs; a test checks that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Args = tuple[object, ...]
INDENT = "    "


@dataclass(frozen=True, slots=True)
class Problem:
    """One specification with several implementations."""

    kind: str
    key: str  # canonical: the same for every naming, phrasing and example of this problem
    name: str  # of the function
    params: tuple[tuple[str, str], ...]  # (name, annotation)
    returns: str  # annotation
    phrase: str  # what is returned; `{0}`, `{1}` stand for the arguments
    nouns: tuple[str, ...]  # what to call the arguments when the prompt does not name them
    bodies: tuple[str, ...]  # lines without indentation, all equivalent
    inputs: tuple[Args, ...]  # the first one is the example in the prompt

    def define(self, body: str, typed: bool = False) -> str:
        """Return the whole function with one of the bodies."""
        return f"{self.header(typed)}\n{indent(body)}"

    def header(self, typed: bool) -> str:
        """Return the line that opens the function."""
        if typed:
            args = ", ".join(f"{name}: {kind}" for name, kind in self.params)
            return f"def {self.name}({args}) -> {self.returns}:"
        return f"def {self.name}({', '.join(name for name, _ in self.params)}):"

    def call(self, args: Args) -> str:
        """Return the source of a call."""
        return f"{self.name}({', '.join(map(repr, args))})"

    def results(self, body: str) -> list[object]:
        """Return what a body gives on every input (our own code, run in this process)."""
        space: dict[str, object] = {}
        exec(self.define(body), space)
        function = space[self.name]
        assert callable(function)
        return [function(*_copy(args)) for args in self.inputs]

    def tests(self, results: Sequence[object]) -> str:
        """Return the hidden asserts, one per input."""
        pairs = zip(self.inputs, results, strict=True)
        return "\n".join(f"assert {self.call(args)} == {value!r}" for args, value in pairs) + "\n"


def _copy(args: Args) -> Args:
    return tuple(list(a) if isinstance(a, list) else dict(a) if isinstance(a, dict) else a for a in args)


def indent(body: str) -> str:
    """Return a body indented by one level."""
    return "\n".join(INDENT + line for line in body.split("\n"))


def fill(phrase: str, names: Sequence[str]) -> str:
    """Put argument names into a phrase."""
    for i, name in enumerate(names):
        phrase = phrase.replace("{" + str(i) + "}", name)
    return phrase
