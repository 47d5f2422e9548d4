"""What one worker does with a block of rows; Ray itself is in test_cluster.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ray.cloudpickle import dumps, loads

import ripple
from ripple.engine.result import Result
from ripple.errors import RippleError
from ripple.options import Options
from ripple.pool.cluster import Cluster
from ripple.pool.worker import FATAL, Recipe, Worker, without_tokenizer

OPTIONS = Options("confidence", length=16)


def worker(checkpoint: Path) -> Worker:
    return Worker(Recipe(str(checkpoint), {"device": "cpu"}, batch=2), without_tokenizer)


def decode(worker: Worker, *prompts: Any) -> dict[int, Any]:
    block = {
        "number": list(range(len(prompts))),
        "asked": [dumps((prompt, OPTIONS)) for prompt in prompts],
    }
    outcomes = worker(block)
    return dict(zip(outcomes["number"], map(loads, outcomes["outcome"]), strict=True))


def test_a_block_comes_back_with_every_number_once(checkpoint: Path) -> None:
    outcomes = decode(worker(checkpoint), "1 + 1 =", "", "2 + 2 =", [3, 4])
    assert sorted(outcomes) == [0, 1, 2, 3]
    assert isinstance(outcomes[1], RippleError) and "empty" in str(outcomes[1])
    engine = ripple.load(checkpoint, device="cpu")
    for number, prompt in ((0, "1 + 1 ="), (2, "2 + 2 ="), (3, [3, 4])):
        alone = engine.generate(prompt, OPTIONS)
        assert isinstance(outcomes[number], Result) and outcomes[number].token_ids == alone.token_ids
        assert outcomes[number].tokenizer is None


def test_a_model_that_cannot_be_loaded_is_told_once_and_as_a_sentence() -> None:
    outcomes = decode(worker(Path("/nowhere/at/all")), "1", "2")
    assert list(outcomes) == [FATAL]
    assert "cannot load the model:" in str(outcomes[FATAL]) and "neither an existing" in str(outcomes[FATAL])


def test_a_worker_whose_device_breaks_makes_room_for_a_new_one(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    some = worker(checkpoint)
    run = some._engine.runner.run

    def broken(work: Any) -> Any:
        return [RuntimeError("no device")] * len(work)

    monkeypatch.setattr(some._engine.runner, "run", broken)
    assert list(decode(some, "1")) == [FATAL] and not left  # it never worked: another would not either
    monkeypatch.setattr(some._engine.runner, "run", run)
    decode(some, "1")
    monkeypatch.setattr(some._engine.runner, "run", broken)
    decode(some, "1")
    assert left == [1]


def test_ray_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RippleError, match=r"pip install 'ripple-dllm\[ray\]'"):
        Cluster().ray()
