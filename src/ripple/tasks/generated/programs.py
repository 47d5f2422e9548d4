"""`programs`: a sentence and one assert; the response is a whole function, scored by hidden tests."""

from __future__ import annotations

import random

from ripple.tasks.base import Item
from ripple.tasks.generated.base import Draft, GeneratedCode
from ripple.tasks.generated.functions import VERBS, any_problem
from ripple.tasks.generated.problems import fill

_ASKS = (
    "Write a Python function that returns {what}.",
    "Write a function to get {what}.",
    "Define a function which gives {what}.",
    "Implement a function that computes {what}.",
)


class Programs(GeneratedCode):
    """Write a function from one sentence and one assert."""

    name = "programs"
    summary = "a whole Python function, from one sentence and one assert"

    def draft(self, rng: random.Random) -> Draft:
        """Write one request with its assert, and one function."""
        problem = any_problem(rng)
        body = rng.choice(problem.bodies)
        results = problem.results(body)
        ask = rng.choice(_ASKS).format(what=fill(problem.phrase, problem.nouns))
        prompt = f"{ask}\nassert {problem.call(problem.inputs[0])} == {results[0]!r}\n"
        if rng.random() < 0.5:
            said = fill(problem.phrase, [name for name, _ in problem.params])
            body = f'"""{rng.choice(VERBS)} {said}."""\n{body}'
        return Draft(
            problem.kind, prompt, problem.define(body), tests=problem.tests(results), key=problem.key
        )

    def program(self, item: Item, text: str) -> str:
        """Return the response as it is."""
        return text
