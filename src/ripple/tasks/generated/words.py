"""`words`: multi-step word problems whose answer follows `####`. The stories are in `stories.py`."""

from __future__ import annotations

import random
import re

from ripple.tasks.base import Item
from ripple.tasks.generated.base import Draft, GeneratedTask
from ripple.tasks.generated.stories import STORIES, Story
from ripple.tasks.generated.text import OPENINGS, number, step

_MARK = re.compile(r"####([^\n]*)")
_CLOSINGS = ("", "", "So the answer is {a}.\n", "The answer is {a} {unit}.\n", "That makes {a} {unit}.\n")


def extract(text: str) -> str | None:
    """Return what follows the last `####` on its line, or None when there is no such mark."""
    answers = _MARK.findall(text)
    return answers[-1].strip() if answers else None


class Words(GeneratedTask):
    """Word problems of two to five steps, each step a single operation on small numbers."""

    name = "words"
    summary = "word problems of two to five steps; the answer follows ####"

    def draft(self, rng: random.Random) -> Draft:
        """Write one story, its question and a worked solution."""
        kind = rng.choice(list(STORIES))
        story = STORIES[kind](rng)
        return Draft(
            kind=kind,
            prompt=f"Question: {story.text}\nAnswer:\n",
            solution=self._solution(rng, story),
            answer=str(story.answer),
        )

    @staticmethod
    def _solution(rng: random.Random, story: Story) -> str:
        lines = [step(rng, labels, expr, value) for labels, expr, value in story.steps]
        closing = rng.choice(_CLOSINGS).format(a=story.answer, unit=story.unit)
        return f"{rng.choice(OPENINGS)}{chr(10).join(lines)}\n{closing}#### {story.answer}"

    def score(self, item: Item, text: str) -> bool:
        """Say whether the number after the last `####` is the answer."""
        answer = extract(text)
        return answer is not None and number(answer) == number(item.answer)
