"""The types that callers see. `make check` has mypy read this file; pytest holds the values against them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_type

import numpy as np
import torch

import ripple

MESSAGES: list[dict[str, str]] = [{"role": "user", "content": "Hi"}]


def test_one_prompt_is_one_result_and_many_are_a_list() -> None:
    engine = ripple.load("tiny-llada", device="cpu")
    options = ripple.Options(length=4)
    one = [
        assert_type(engine.generate("Hi", options), ripple.Result),
        assert_type(engine.generate([5, 6], options), ripple.Result),
        assert_type(engine.generate((5, 6), options), ripple.Result),
        assert_type(engine.generate(np.array([5, 6]), options), ripple.Result),
        assert_type(engine.generate(torch.tensor([5, 6]), options), ripple.Result),
        assert_type(engine.generate(MESSAGES, options), ripple.Result),
        assert_type(engine.generate([{"role": "user", "content": "Hi"}], options), ripple.Result),
    ]
    many = [
        assert_type(engine.generate(["Hi", "Ho"], options), list[ripple.Result]),
        assert_type(engine.generate([[5], [6]], options), list[ripple.Result]),
        assert_type(engine.generate([np.array([5]), np.array([6])], options), list[ripple.Result]),
        assert_type(engine.generate([MESSAGES, MESSAGES], [options, options]), list[ripple.Result]),
        assert_type(
            engine.generate(["Hi", "Ho"], length=[4, 5], decoder=["rps", ripple.EB()]), list[ripple.Result]
        ),
    ]  # fmt: skip
    assert all(isinstance(result, ripple.Result) for result in one)
    assert all([type(result) for result in results] == [ripple.Result] * 2 for results in many)


async def awaited(engine: ripple.Engine) -> None:
    """Read by mypy; tests/engine/test_thread.py runs the like."""
    assert_type(await engine.agenerate("Hi"), ripple.Result)
    assert_type(await engine.agenerate(["Hi"], decoder="rps"), list[ripple.Result])
    async for event in engine.astream("Hi"):
        assert_type(event, ripple.Event)
    assert_type(engine.stream("Hi"), Iterator[ripple.Event])
    assert_type(engine.thread.submit(engine.prepare("Hi")).result(), ripple.Result)
    _ = ripple.Sesson  # type: ignore[attr-defined]
    engine.generate("Hi", lenght=4)  # type: ignore[call-overload]
    engine.generate("Hi", length="4")  # type: ignore[arg-type]
