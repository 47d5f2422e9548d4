"""`functions`: a Python signature and docstring; the response is the body, scored by hidden tests."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ripple.tasks.base import Draft, Family, Item
from ripple.tasks.doubles import double
from ripple.tasks.pipelines import pipeline
from ripple.tasks.problems import Problem, fill, indent, score_code
from ripple.tasks.routines import cases, dictionary, pairs, repeat
from ripple.tasks.strings import characters, sentence

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


class Functions(Family):
    """Complete a function from its signature, docstring and one example."""

    name = "functions"

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

    def score(self, item: Item, text: str) -> bool:
        """Say whether the prompt continued by the response passes the hidden tests."""
        return self.score_many([item], [text], workers=1)[0]

    def score_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[bool]:
        """Score many responses in parallel sandboxes."""
        return score_code(items, [i.prompt + t for i, t in zip(items, texts, strict=True)], workers)
