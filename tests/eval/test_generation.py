"""The harness's generation arguments become options; what they cannot mean is one sentence.

That a flat table of options is read right is tested in tests/test_options.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from ripple.errors import RippleError
from ripple.eval.generation import read_generation
from ripple.options import Options


@pytest.mark.parametrize(
    ("arguments", "table", "stops"),
    [
        (
            {"until": ["\n", "Q:"], "max_gen_toks": 32, "do_sample": False, "temperature": 0.7},
            {"length": 32, "temperature": 0.0},
            ("\n", "Q:"),
        ),
        ({"until": "\n", "max_tokens": 8}, {"length": 8}, ("\n",)),
        ({"until": None}, {}, ()),
        ({"do_sample": True, "temperature": 0.5}, {"temperature": 0.5}, ()),
        ({"top_p": 0.9, "do_sample": False}, {"temperature": 0.0}, ()),
        ({"top_p": 1, "temperature": 0.5}, {"temperature": 0.5}, ()),
        ({"lam": 0.3}, {"lam": 0.3}, ()),
    ],
)
def test_generation_arguments(
    arguments: dict[str, Any], table: dict[str, Any], stops: tuple[str, ...]
) -> None:
    assert read_generation(arguments) == (table, stops)
    assert Options.of(table).length == table.get("length")


def test_a_short_length_clamps_the_block() -> None:
    assert Options.of({"length": 8}).block_size == 8


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"top_p": 0.9, "do_sample": True, "temperature": 0.5}, r"Sampling with top_p=0\.9 is not supported"),
        ({"until": 7}, "until must be a string or a list of strings, got 7"),
        ({"max_gen_toks": "many"}, "length must be a whole number of at least 1 or none, got 'many'"),
        ({"max_gen_toks": 0}, "length must be a whole number of at least 1"),
        ({"temperature": "hot"}, "temperature must be a number of at least 0, got 'hot'"),
        ({"lamb": 0.2}, r"Unknown option 'lamb'\. Did you mean 'lam'\?"),
    ],
)
def test_bad_arguments_are_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RippleError, match=sentence) as refused:
        Options.of(read_generation(arguments)[0])
    assert "\n" not in str(refused.value)
