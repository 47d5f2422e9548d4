"""A model that attends block by block behind the server: nothing about it is special."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import ripple
from ripple.models.random_checkpoint import write_random_checkpoint
from tests.server.conftest import Server, serving

LENGTH = 20
SIZES: dict[str, Any] = {
    "seed": 1, "vocab_size": 320, "d_model": 32, "n_heads": 4, "n_kv_heads": 2, "d_ff": 64, "block_size": 8,
    "max_positions": 256,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_checkpoint(tmp_path_factory.mktemp("served") / "small-sdar", "sdar", **SIZES)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with serving("--model", str(folder), "--length", str(LENGTH), "--cache", "exact") as one:
        yield one


@pytest.fixture(scope="module")
def engine(folder: Path) -> ripple.Engine:
    return ripple.load(folder)


@pytest.mark.parametrize("name", ["confidence", "edit", "glide", "rps"])
def test_answers_whole_and_in_pieces_are_the_engines(
    server: Server, engine: ripple.Engine, name: str
) -> None:
    model, extra = "small-sdar", {"ripple": {"decoder": name}}
    expected = engine.generate("the sum", decoder=name, length=LENGTH, cache="exact", stop_at_end=True)
    client = server.client()
    told = client.completions.create(model=model, prompt="the sum", extra_body=extra)
    assert told.choices[0].text == expected.text and told.model_dump()["ripple"]["nfe"] == expected.nfe
    pieces = client.completions.create(model=model, prompt="the sum", extra_body=extra, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces if piece.choices) == expected.text
    chat = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "the sum"}], max_tokens=LENGTH
    )
    assert chat.usage is not None and 0 < chat.usage.completion_tokens <= LENGTH


@pytest.mark.parametrize("limit", [(), ("--max-length", "50")])
def test_where_nobody_says_a_length_the_canvas_grows(
    folder: Path, engine: ripple.Engine, limit: tuple[str, ...]
) -> None:
    most = int(limit[1]) if limit else None
    how: dict[str, Any] = {"decoder": "confidence", "cache": "exact", "length": most}
    expected = engine.generate("the sum", stop_at_end=True, **how)
    assert len(expected.new_tokens) > LENGTH
    with serving("--model", str(folder), "--cache", "exact", "--decoder", "confidence", *limit) as one:
        told = one.client().completions.create(model="small-sdar", prompt="the sum")
    assert told.choices[0].text == expected.text and told.usage is not None
    assert told.usage.completion_tokens == len(expected.new_tokens)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"extra_body": {"ripple": {"cache": "dual"}}}, "has no meaning for sdar"),
        ({"extra_body": {"ripple": {"block": 4}}}, "attends in blocks of 8"),
        ({"max_tokens": 255}, "in whole blocks of 8, exceed the model's 256 positions"),
    ],
)
def test_what_such_a_model_cannot_do_is_a_400_of_one_sentence(
    server: Server, how: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=sentence):
        server.client().completions.create(model="small-sdar", prompt="the sum", **how)
