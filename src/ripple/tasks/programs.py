"""`programs`: a sentence and one assert; the response is a whole function, scored by hidden tests."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ripple.tasks.base import Draft, Family, Item
from ripple.tasks.functions import VERBS, any_problem
from ripple.tasks.problems import fill, score_code

_ASKS = (
    "Write a Python function that returns {what}.",
    "Write a function to get {what}.",
    "Define a function which gives {what}.",
    "Implement a function that computes {what}.",
)


class Programs(Family):
    """Write a function from one sentence and one assert."""

    name = "programs"

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

    def score(self, item: Item, text: str) -> bool:
        """Say whether the response passes the hidden tests."""
        return self.score_many([item], [text], workers=1)[0]

    def score_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[bool]:
        """Score many responses in parallel sandboxes."""
        return score_code(items, texts, workers)
