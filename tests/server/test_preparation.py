"""What stands between a body and the queue: its parts are counted, its text is tried, its turn is awaited."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ripple
from ripple.errors import QueueFull, nearest
from ripple.server.bodies import has_more_parts
from ripple.server.options import ServerOptions
from ripple.server.preparation import CHARACTERS, surely_exceeds
from ripple.server.schema import CompletionRequest
from ripple.server.service import LARGE_BODY, Service

LARGE = json.dumps({"prompt": "a", "user": "x" * LARGE_BODY}).encode()
QUEUE = 3


def n_parts(value: Any) -> int:
    """Strings, names, lists and objects of a value, counted one by one."""
    if isinstance(value, dict):
        return 1 + sum(1 + n_parts(one) for one in value.values())
    if isinstance(value, list):
        return 1 + sum(map(n_parts, value))
    return isinstance(value, str)


NASTY = st.text(alphabet='\\"[]{},: aé\n', max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | NASTY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NASTY, inner, max_size=4),
    max_leaves=20,
)


@given(value=VALUES, is_ascii=st.booleans())
def test_parts_are_counted_without_parsing(value: Any, is_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    assert not has_more_parts(text, n_parts(value))
    assert has_more_parts(text, n_parts(value) - 1)


def test_text_is_tried_in_part_and_what_may_fit_is_never_refused() -> None:
    tokenizer = ripple.load("tiny-llada").tokenizer
    assert tokenizer is not None
    rng = random.Random(0)
    outcomes = set()
    for _ in range(300):
        words = rng.choices((" ", "  ", "\n", "a", "the", " jars", "é", "数", " " * 30), k=rng.randint(1, 5))
        text = "".join(words) * rng.randint(1, 60)
        most = rng.randint(1, 12)
        told = surely_exceeds(most, text, tokenizer)
        outcomes.add(told)
        assert not told or len(tokenizer.encode(text)) > most
    assert outcomes == {False, True}


def test_of_a_prompt_that_is_far_too_long_little_is_tokenised() -> None:
    class Counting:
        """Takes every character for a token."""

        n = 0

        def encode(self, text: str) -> list[int]:
            self.n += len(text)
            return [0] * len(text)

    tokenizer: Any = Counting()
    long = "a" * 4_000_000
    assert surely_exceeds(100, long, tokenizer)
    assert surely_exceeds(100, [{"role": "user", "content": long}], tokenizer)
    assert tokenizer.n == 2 * CHARACTERS * 100
    assert surely_exceeds(3, [1, 2, 3, 4], None) and not surely_exceeds(4, [1, 2, 3, 4], None)
    assert not surely_exceeds(100, long, None), "the engine says that there is no tokenizer"


def test_the_nearest_name_is_not_looked_for_among_megabytes() -> None:
    assert nearest("lamb", ["lam", "tau"]) == "lam"
    assert nearest("lam" * 2_000_000, ["lam", "tau"]) is None


# -- turns -------------------------------------------------------------------------------------------------


@pytest.fixture
def service(folders: dict[str, Path]) -> Iterator[Service]:
    engine = ripple.load(folders["llada"], device="cpu", queue_limit=QUEUE)
    service = Service(engine, "small", limits=ServerOptions(queue=QUEUE))
    yield service
    service.close()


class Gate:
    """Stands in the way of preparation until it is opened, and notes who came."""

    def __init__(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.came: list[bool] = []

        def held(body: Any, is_wanted: Any) -> list[Any]:
            self.open.wait(30)
            self.came.append(is_wanted())
            return []

        monkeypatch.setattr(service._preparation, "requests", held)


def test_bodies_in_preparation_wait_in_the_queue(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, given_back = Gate(service, monkeypatch), list[int]()
    monkeypatch.setattr(service._give_back, "soon", lambda: given_back.append(service.n_waiting))

    async def crowd() -> list[Any]:
        tasks = [asyncio.ensure_future(service.prepare(CompletionRequest, LARGE)) for _ in range(QUEUE + 2)]
        await asyncio.sleep(0.05)
        assert service.n_waiting == QUEUE
        gate.open.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = asyncio.run(crowd())
    assert [isinstance(one, QueueFull) for one in outcomes] == [False] * QUEUE + [True] * 2
    assert service.n_waiting == 0 and gate.came == [True] * QUEUE
    assert given_back == [2, 1, 0], "what was freed is given back after each of them"


def test_who_leaves_gives_up_the_turn(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(service, monkeypatch)

    async def leave() -> None:
        tasks = [asyncio.ensure_future(service.prepare(CompletionRequest, LARGE)) for _ in range(QUEUE)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert service.n_waiting == 0
        gate.open.set()
        await service.prepare(CompletionRequest, LARGE)

    asyncio.run(leave())
    assert gate.came == [False, True], "the first was under way, the others never began"
