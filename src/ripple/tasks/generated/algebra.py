r"""`algebra`: equations, expressions, sequences and remainders; worked steps, answer in `\boxed{}`."""

from __future__ import annotations

import random
import re

from ripple.tasks.base import Item
from ripple.tasks.generated.base import Draft, GeneratedTask
from ripple.tasks.generated.exercises import EXERCISES
from ripple.tasks.generated.text import OPENINGS, number

_OPEN = "\\boxed{"
_CLOSINGS = (
    "The answer is \\boxed{{{a}}}.",
    "So the answer is \\boxed{{{a}}}.",
    "Answer: \\boxed{{{a}}}",
    "Therefore \\boxed{{{a}}}.",
    "\\boxed{{{a}}}",
)
_NAMED = re.compile(r"^[a-zA-Z]\s*=\s*")  # `x = 5` in the box counts as 5


def extract(text: str) -> str | None:
    r"""Return what the last complete `\boxed{...}` holds, nested braces included, or None."""
    start = text.rfind(_OPEN)
    while start >= 0:
        depth = 0
        for i in range(start + len(_OPEN) - 1, len(text)):
            depth += {"{": 1, "}": -1}.get(text[i], 0)
            if depth == 0:
                return text[start + len(_OPEN) : i].strip()
        start = text.rfind(_OPEN, 0, start)
    return None


class Algebra(GeneratedTask):
    """Short exercises in school algebra and arithmetic with integer answers."""

    name = "algebra"
    summary = r"school algebra in worked steps; the answer is in \boxed{}"

    def draft(self, rng: random.Random) -> Draft:
        """Write one exercise with a worked solution."""
        kind = rng.choice(list(EXERCISES))
        work = EXERCISES[kind](rng)
        lines = "\n".join(rng.choice(ways) for ways in work.steps)
        closing = rng.choice(_CLOSINGS).format(a=work.answer)
        return Draft(
            kind=kind,
            prompt=f"Problem: {rng.choice(work.asks)}\nSolution:\n",
            solution=f"{rng.choice(OPENINGS[:5])}{lines}\n{closing}",
            answer=str(work.answer),
            key=f"{kind}: {work.asks[0]}",  # the same exercise asked in other words stays on its side
        )

    def score(self, item: Item, text: str) -> bool:
        r"""Say whether the last `\boxed{}` holds the answer, as a number and nothing beside it."""
        answer = extract(text)
        if answer is None:
            return False
        bare = _NAMED.sub("", answer.replace("$", "").replace("\\,", "").replace(" ", "")).rstrip(".")
        if not re.fullmatch(r"[-+]?[\d,]*\.?\d+(/\d+)?", bare):
            return False
        return number(bare) == number(item.answer)
