"""`functions`: a Python signature and docstring; the response is the body, scored by hidden tests."""

from __future__ import annotations

import random

from ripple.tasks.base import Item
from ripple.tasks.generated.base import Draft, GeneratedCode
from ripple.tasks.generated.doubles import double
from ripple.tasks.generated.pipelines import pipeline
from ripple.tasks.generated.problems import Problem, fill, indent
from ripple.tasks.generated.routines import cases, dictionary, pairs, repeat
from ripple.tasks.generated.strings import characters, sentence

# Kinds with more different problems come more often.
_KINDS = (
    pipeline,
    pipeline,
    double,
    double,
    double,
    double,
    characters,
    sentence,
    pairs,
    dictionary,
    cases,
    repeat,
)
_NOTES = ("# build the result", "# one pass is enough", "# keep what is asked for", "# work it out directly")
VERBS = ("Return", "Compute", "Give", "Find")


def any_problem(rng: random.Random) -> Problem:
    """Return a random code problem of any kind."""
    return rng.choice(_KINDS)(rng)


class Functions(GeneratedCode):
    """Complete a function from its signature, docstring and one example."""

    name = "functions"
    summary = "the body of a Python function, from its signature and docstring"

    def draft(self, rng: random.Random) -> Draft:
        """Write one signature with its docstring, and one body."""
        problem = any_problem(rng)
        body = rng.choice(problem.bodies)
        results = problem.results(body)
        phrase = fill(problem.phrase, [name for name, _ in problem.params])
        doc = (
            f'{problem.header(True)}\n    """{rng.choice(VERBS)} {phrase}.\n\n'
            f'    >>> {problem.call(problem.inputs[0])}\n    {results[0]!r}\n    """\n'
        )
        if problem.kind != "double" and rng.random() < 0.4:
            body = f"{rng.choice(_NOTES)}\n{body}"
        return Draft(problem.kind, doc, indent(body), tests=problem.tests(results), key=problem.key)

    def program(self, item: Item, text: str) -> str:
        """Return the prompt continued by the response."""
        return item.prompt + text
