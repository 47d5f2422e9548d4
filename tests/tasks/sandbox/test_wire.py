"""Values cross as they are, and no bytes do more than raise ValueError."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from ripple.tasks.sandbox.wire import ValueReader, ValueWriter

KEYS = st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.floats(allow_nan=False)
VALUES = st.recursive(
    KEYS | st.fractions() | st.dates() | st.timedeltas() | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner) | st.sets(KEYS),
    max_leaves=12,
)
WRITER, READER = ValueWriter(lambda value: (b"H", 7)), ValueReader(lambda kind, number: (kind, number))


@settings(max_examples=60, deadline=None)
@given(VALUES)
def test_values_come_back(value: object) -> None:
    back = READER.decode(WRITER.encode(value))
    assert back == value and type(back) is type(value)


def test_objects_cross_as_handles() -> None:
    assert READER.decode(WRITER.encode([object(), int])) == [(b"H", 7), int]


def test_damaged_messages_raise_and_nothing_else() -> None:
    rng = random.Random(0)
    message = WRITER.encode([1, "text", {2: (3.5, None)}, {b"x"}, range(4), int])
    for _ in range(3000):
        damaged = bytearray(message)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            READER.decode(bytes(damaged[: rng.randint(0, len(damaged))]))
        except (ValueError, TypeError):  # a list as a key is a TypeError
            continue
