"""Text as a model with a byte for every character writes it: whole characters, whole answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from ripple.models.random_checkpoint import write_random_checkpoint
from tests.server.conftest import serving

# A random model at a high temperature writes bytes, some of which happen to be characters.
HOW: dict[str, Any] = {"model": "bytes", "max_tokens": 128, "temperature": 2, "seed": 8}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    folder = tmp_path_factory.mktemp("bytes")
    write_random_checkpoint(folder, "llada", seed=2, vocab_size=340, d_model=32, n_heads=2, d_ff=64)
    with serving("--model", str(folder), "--name", "bytes", "--decoder", "default:order=left") as one:
        yield one.client()


@pytest.mark.parametrize("seed", [2, 6, 10])
def test_a_character_is_never_sent_in_parts(client: openai.OpenAI, seed: int) -> None:
    how = HOW | {"prompt": "Zoë 数 🙂", "seed": seed, "logprobs": 1}
    whole = client.completions.create(**how).choices[0]
    parts = [choice for chunk in client.completions.create(**how, stream=True) for choice in chunk.choices]
    assert any(sign > "\x7f" and sign != "\ufffd" for sign in whole.text), "some of many bytes"
    assert "".join(part.text for part in parts) == whole.text and len(parts) > 20
    scored = whole.logprobs
    assert scored is not None and scored.tokens is not None
    assert "".join(scored.tokens) == whole.text
    streamed = [part.logprobs.token_logprobs for part in parts if part.logprobs is not None]
    assert [p for some in streamed for p in some or ()] == scored.token_logprobs


def test_echo_logprobs_lists_choices_and_token_ids_go_together(client: openai.OpenAI) -> None:
    prompts = [[90, 200, 300], [201], [90, 91]]
    told = client.completions.create(**HOW | {"prompt": prompts, "n": 2, "echo": True, "logprobs": 1})
    assert [choice.index for choice in told.choices] == list(range(6)) and told.usage is not None
    assert told.usage.prompt_tokens == 6
    for choice in told.choices:
        scored, n_prompt = choice.logprobs, len(prompts[choice.index // 2])
        assert scored is not None and scored.tokens is not None and scored.token_logprobs is not None
        assert "".join(scored.tokens) == choice.text
        assert scored.token_logprobs[:n_prompt] == [None] * n_prompt
        assert all(p is not None and p <= 0 for p in scored.token_logprobs[n_prompt:])
    sizes = [len(choice.logprobs.tokens or ()) for choice in told.choices if choice.logprobs is not None]
    assert sum(sizes) == 2 * told.usage.prompt_tokens + told.usage.completion_tokens
