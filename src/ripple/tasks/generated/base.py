"""What the generated families share: items made from a seed, split by a hash, and three uses of them.

A family's `draft(rng)` writes one problem. A hash of the problem's key decides whether it belongs to the
stream "train" or to the stream "test", so no test problem can appear in training, whatever the number of
samples. The key is the prompt, or for code the problem itself, whatever names and examples it is dressed in.

* Training: the stream "train".
* Test: `test_items()`, the first 1,000 distinct items of the stream "test".
* Development, for choosing settings: `development_items(n)`, from index 50,000 of the stream "test" on, less
  the problems of the test items; as a task of its own, `words/development`. The plain stream repeats test
  problems: 45 % of `algebra` there, 31 % of the code.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import itertools
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ripple.tasks.sandbox as sandbox
from ripple.errors import RippleError, unknown
from ripple.tasks.base import Item, Verdict, item_count, paired

STREAMS = ("train", "test")
TEST_ITEMS = 1000
TEST_SHARE = 16  # one key in this many belongs to the test stream
DEVELOPMENT = "/development"  # behind a family's name
DEVELOPMENT_START = 50_000  # index in the test stream


@dataclass(frozen=True, slots=True)
class Draft:
    """What a family writes from one random stream, before it is known to be training or test."""

    kind: str
    prompt: str
    solution: str
    answer: str = ""
    tests: str = ""
    key: str = ""  # what is hashed for the split; empty: the prompt

    @property
    def problem(self) -> str:
        """Return what is hashed for the split."""
        return self.key or self.prompt


def in_test(key: str) -> bool:
    """Say whether a problem with this key belongs to the test stream."""
    return hashlib.sha256(key.encode()).digest()[0] % TEST_SHARE == 0


class GeneratedTask:
    """A family of generated problems; it adds its name, its summary, `draft` and `score`."""

    name = ""
    summary = ""
    runs_code = False
    size = TEST_ITEMS

    def draft(self, rng: random.Random) -> Draft:
        """Write one problem."""
        raise NotImplementedError

    def score(self, item: Item, text: str) -> bool:
        """Say whether a response solves the item."""
        raise NotImplementedError

    # -- items ------------------------------------------------------------------------------------------

    @property
    def family(self) -> str:
        """The family's name, of the development split too."""
        return self.name.removesuffix(DEVELOPMENT)

    def development(self) -> GeneratedTask:
        """Return the family with its development items in place of the test items."""
        twin = copy.copy(self)
        twin.name = self.family + DEVELOPMENT
        return twin

    def generate(self, stream: str, index: int) -> Item:
        """Return item `index` of a stream, always the same one, on any machine."""
        return self._item(stream, index, self._draft(stream, index))

    def stream(self, stream: str, start: int = 0) -> Iterator[Item]:
        """Yield the items of a stream from an index on, without end."""
        return (self.generate(stream, index) for index in itertools.count(start))

    def test_items(self, n: int | None = None) -> list[Item]:
        """Return the first n distinct items of the test stream (repeated prompts are passed over)."""
        if self.name.endswith(DEVELOPMENT):
            return self.development_items(item_count(n, self.size))
        drafts = self._distinct(0, item_count(n, self.size))
        return [self._item("test", index, draft) for index, draft in drafts]

    def development_items(self, n: int) -> list[Item]:
        """Return n distinct items to choose settings on; none of their problems is among the test items."""
        drafts = self._distinct(DEVELOPMENT_START, item_count(n, 0), self._test_problems)
        return [self._item("test", index, draft) for index, draft in drafts]

    @functools.cached_property
    def _test_problems(self) -> set[str]:
        return {draft.problem for _, draft in self._distinct(0, self.size)}

    def _distinct(
        self, start: int, n: int, excluded: Collection[str] = frozenset()
    ) -> list[tuple[int, Draft]]:
        """Return the first n drafts of the test stream from an index on that repeat no prompt."""
        prompts: set[str] = set()
        drafts: list[tuple[int, Draft]] = []
        index = start
        while len(drafts) < n:
            draft = self._draft("test", index)
            if draft.prompt not in prompts and draft.problem not in excluded:
                prompts.add(draft.prompt)
                drafts.append((index, draft))
            index += 1
        return drafts

    def _draft(self, stream: str, index: int) -> Draft:
        if stream not in STREAMS:
            raise unknown("stream", stream, STREAMS)
        if index < 0:
            raise RippleError(f"An item's index must be 0 or more, not {index}.")
        # A string seed goes through SHA-512: the same on every Python version, unlike the built-in hash().
        rng = random.Random(f"ripple/{self.family}/{stream}/{index}")
        while True:
            draft = self.draft(rng)
            if in_test(draft.problem) == (stream == "test"):
                return draft

    def _item(self, stream: str, index: int, draft: Draft) -> Item:
        return Item(
            id=f"{self.family}/{stream}/{index}",
            task=self.name,
            kind=draft.kind,
            prompt=draft.prompt,
            solution=draft.solution,
            answer=draft.answer,
            tests=draft.tests,
        )

    # -- judging ----------------------------------------------------------------------------------------

    def stops_for(self, chat: bool) -> tuple[str, ...]:
        """Return no stop strings: a response ends at the model's end token."""
        return ()

    def check_ready(self) -> None:
        """Do nothing: a family needs no files and no packages."""

    def facts(self, chat: bool) -> dict[str, Any]:
        """Return nothing: a family's name says everything."""
        return {}

    def judge_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[Verdict]:
        """Judge many responses; a family's verdict has no further marks."""
        return [Verdict(right) for right in self.score_many(items, texts, workers)]

    def score_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[bool]:
        """Score many responses; `workers` matters only to the families that run code."""
        return [self.score(item, text) for item, text in paired(items, texts)]


class GeneratedCode(GeneratedTask):
    """A family whose responses are Python, scored by hidden tests in the sandbox."""

    runs_code = True

    def program(self, item: Item, text: str) -> str:
        """Return the program that the hidden tests are run on."""
        raise NotImplementedError

    def score(self, item: Item, text: str) -> bool:
        """Say whether the program passes the hidden tests."""
        return self.score_many([item], [text], workers=1)[0]

    def score_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[bool]:
        """Score many responses in parallel sandboxes."""
        pairs = paired(items, texts)
        programs = [sandbox.Program(self.program(item, text), item.tests) for item, text in pairs]
        return [outcome.passed for outcome in sandbox.run_many(programs, workers=workers)]
