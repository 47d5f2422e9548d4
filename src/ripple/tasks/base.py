"""What a task family is: items made from a seed, split by hash into training and test, and scored.

A family's `draft(rng)` writes one problem. Whether a draft belongs to the test stream is decided by a
hash of its key (the prompt, or for code the problem itself, whatever names and examples it is dressed
in), so no test problem can appear in training, whatever the number of samples.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ripple.errors import RippleError, unknown

STREAMS = ("train", "test")
TEST_ITEMS = 1000  # the fixed test set: the first this many distinct items of the test stream
TEST_SHARE = 16  # one key in this many belongs to the test stream


@dataclass(frozen=True, slots=True)
class Item:
    """One problem with one of its valid solutions."""

    id: str  # "<task>/<stream>/<index>": enough to make the item again
    task: str
    kind: str  # which sort of problem within the family
    prompt: str  # what the model is given; the response starts right after it
    solution: str  # one of several valid responses
    answer: str = ""  # the final answer, where the response is text
    tests: str = ""  # hidden asserts, where the response is code


@dataclass(frozen=True, slots=True)
class Draft:
    """What a family writes from one random stream, before it is known to be training or test."""

    kind: str
    prompt: str
    solution: str
    answer: str = ""
    tests: str = ""
    key: str = ""  # what is hashed for the split; empty: the prompt


class Task(Protocol):
    """A family of generated problems. There is no stop rule: a response ends at the model's end token."""

    @property
    def name(self) -> str:
        """Return the family's name."""
        ...

    def generate(self, stream: str, index: int) -> Item:
        """Return item `index` of a stream, always the same one."""
        ...

    def test_items(self, n: int = TEST_ITEMS) -> list[Item]:
        """Return the first n distinct items of the test stream."""
        ...

    def score(self, item: Item, text: str) -> bool:
        """Say whether a response solves the item."""
        ...

    def score_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[bool]:
        """Score many responses, in parallel where that pays."""
        ...


def in_test(key: str) -> bool:
    """Say whether a problem with this key belongs to the test stream."""
    return hashlib.sha256(key.encode()).digest()[0] % TEST_SHARE == 0


class Family:
    """The part that all families share; a family adds its name, `draft` and `score`."""

    name = ""

    def draft(self, rng: random.Random) -> Draft:
        """Write one problem."""
        raise NotImplementedError

    def score(self, item: Item, text: str) -> bool:
        """Say whether a response solves the item."""
        raise NotImplementedError

    def score_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[bool]:
        """Score many responses; `workers` matters only to the families that run code."""
        return [self.score(item, text) for item, text in zip(items, texts, strict=True)]

    def generate(self, stream: str, index: int) -> Item:
        """Return item `index` of a stream, always the same one, on any machine."""
        if stream not in STREAMS:
            raise unknown("stream", stream, STREAMS)
        if index < 0:
            raise RippleError(f"An item's index must be 0 or more, not {index}.")
        # A string seed goes through SHA-512: the same on every Python version, unlike the built-in hash().
        rng = random.Random(f"ripple/{self.name}/{stream}/{index}")
        while True:
            draft = self.draft(rng)
            if in_test(draft.key or draft.prompt) == (stream == "test"):
                break
        return Item(
            id=f"{self.name}/{stream}/{index}",
            task=self.name,
            kind=draft.kind,
            prompt=draft.prompt,
            solution=draft.solution,
            answer=draft.answer,
            tests=draft.tests,
        )

    def stream(self, stream: str, start: int = 0) -> Iterator[Item]:
        """Yield the items of a stream from an index on, without end."""
        index = start
        while True:
            yield self.generate(stream, index)
            index += 1

    def test_items(self, n: int = TEST_ITEMS) -> list[Item]:
        """Return the first n distinct items of the test stream (repeated prompts are passed over)."""
        seen: set[str] = set()
        items: list[Item] = []
        for item in self.stream("test"):
            if len(items) >= n:
                break
            if item.prompt not in seen:
                seen.add(item.prompt)
                items.append(item)
        return items
