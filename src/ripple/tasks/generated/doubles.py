"""Problems that ask for two results of one list at once: longer bodies, composed of two pipelines."""

from __future__ import annotations

import random

from ripple.tasks.generated.parts import numbers
from ripple.tasks.generated.pipelines import LIST_NAMES, Stage, stage
from ripple.tasks.generated.problems import Problem

_TARGETS = (("first", "second"), ("a", "b"), ("one", "two"), ("left", "right"))
_STORES = (("kept", "out"), ("acc", "res"), ("total", "result"), ("part", "rest"))


def double(rng: random.Random) -> Problem:
    """Return a problem whose result is a pair of pipelines over the same list."""
    param = rng.choice(LIST_NAMES)
    goal_a, goal_b = rng.choice(_TARGETS)
    store_a, store_b = rng.choice(_STORES)
    a, b = stage(rng, "list", param, store_a), stage(rng, "list", param, store_b)
    notes = rng.random() < 0.5
    ways = max(len(_single(a)), len(_single(b)))
    bodies = []
    for i in range(ways):
        parts = (
            _assign(rng, a, _single(a)[i % len(_single(a))], goal_a, param, notes),
            _assign(rng, b, _single(b)[-1 - i % len(_single(b))], goal_b, param, notes),
        )
        bodies.append("\n".join([*parts, f"return {goal_a}, {goal_b}"]))
    return Problem(
        kind="double",
        key=f"double|{a.key}|{b.key}",
        name=f"{a.short}_and_{b.short}",
        params=((param, "list[int]"),),
        returns=f"tuple[{a.returns}, {b.returns}]",
        phrase=f"two results: first {a.phrase}; second {b.phrase}",
        nouns=("a list of integers",),
        bodies=tuple(bodies),
        inputs=(*((numbers(rng),) for _ in range(5)), ([],), ([7],), ([4, 4, -4, 12, 30, 3],)),
    )


def _single(one: Stage) -> list[str]:
    """Return the bodies whose only `return` opens the last line."""
    return [body for body in one.bodies if body.count("return ") == 1]


def _assign(rng: random.Random, one: Stage, body: str, goal: str, param: str, notes: bool) -> str:
    """Return a body that stores its result instead of returning it, maybe with a comment above."""
    *lines, last = body.split("\n")
    lines.append(last.replace("return ", f"{goal} = ", 1))
    if notes:
        opening = rng.choice(("", "get ", "compute "))
        lines.insert(0, f"# {opening}{one.phrase.replace('{0}', param)}")
    return "\n".join(lines)
