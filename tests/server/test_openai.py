"""The `openai` client against a real server: what stock programs send and what they get."""

from __future__ import annotations

import asyncio
import math
import re
from pathlib import Path
from typing import Any

import openai
import pytest

import ripple
from tests.server.conftest import CHAT, LENGTH, PROMPT, Server

README = Path(__file__).parent.parent.parent / "README.md"
MIXED: list[dict[str, Any]] = [  # decoders of one batch
    {"decoder": "glide"}, {"decoder": "rps:lam=0.2", "cache": "dual"}, {"decoder": "confidence", "tau": 0.8},
    {"decoder": "wino", "block": 16}, {"decoder": "default:order=left", "cache": "prefix"},
    {"decoder": "lopa"},
]  # fmt: skip


def test_the_model_is_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny-llada"]
    assert client.models.retrieve("tiny-llada").owned_by == "ripple"
    with pytest.raises(openai.NotFoundError, match="There is no model 'gpt-9' here"):
        client.completions.create(model="gpt-9", prompt=PROMPT)


def test_the_example_of_the_readme_runs(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    _, example = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names = {"question": CHAT[0]["content"]}
    exec(compile(example.replace("http://127.0.0.1:8000", server.url), "README.md", "exec"), names)
    assert re.search(r"20.* \d+$", capsys.readouterr().out.strip(), re.DOTALL)


def test_a_completion_equals_the_engines_and_its_usage_is_exact(
    client: openai.OpenAI, engine: ripple.Engine
) -> None:
    expected = engine.generate(PROMPT, length=LENGTH, stop_at_end=True)
    told = client.completions.create(model="tiny-llada", prompt=PROMPT, max_tokens=LENGTH)
    assert told.choices[0].text == expected.text and told.choices[0].finish_reason == "length"
    assert told.usage is not None
    assert told.usage.prompt_tokens == expected.prompt_tokens
    assert told.usage.completion_tokens == len(expected.new_tokens)
    assert told.usage.total_tokens == expected.prompt_tokens + len(expected.new_tokens)
    cost = told.model_dump()["ripple"]
    assert cost["nfe"] == expected.nfe == cost["normal"] + cost["lookahead"]
    assert cost["canvases"] == expected.canvases and cost["finish"] == expected.finish and cost["seconds"] > 0


def test_mixed_decoders_in_one_batch_get_what_each_gets_from_the_engine(
    server: Server, engine: ripple.Engine
) -> None:
    async def all_at_once() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            waiting = [
                client.completions.create(
                    model="tiny-llada", prompt=PROMPT, extra_body={"ripple": fields | {"trace": True}}
                )
                for fields in MIXED
            ]
            return await asyncio.gather(*waiting)

    for fields, told in zip(MIXED, asyncio.run(all_at_once()), strict=True):
        options = ripple.Options.of({"length": LENGTH, "stop_at_end": True, "trace": True} | fields)
        expected = engine.generate(PROMPT, options)
        assert told.choices[0].text == expected.text, fields
        assert told.model_dump()["ripple"]["nfe"] == expected.nfe, fields
        *_, end = told.model_dump()["choices"][0]["ripple"]["trace"]
        assert expected.trace is not None and end["token"] == expected.trace[-1].data["token"], fields


def test_prompts_are_text_lists_and_token_ids(client: openai.OpenAI, engine: ripple.Engine) -> None:
    assert engine.tokenizer is not None
    ids = engine.tokenizer.encode(PROMPT)
    alone = client.completions.create(model="tiny-llada", prompt=PROMPT)
    assert alone.usage is not None
    for prompt in ([PROMPT, PROMPT], [ids, ids]):
        told = client.completions.create(model="tiny-llada", prompt=prompt, n=2)
        assert [choice.index for choice in told.choices] == [0, 1, 2, 3]
        assert {choice.text for choice in told.choices} == {alone.choices[0].text}
        assert told.usage is not None and told.usage.prompt_tokens == 2 * len(ids)
        assert told.usage.completion_tokens == 4 * alone.usage.completion_tokens
    assert client.completions.create(model="tiny-llada", prompt=ids).choices[0].text == alone.choices[0].text


def test_a_mask_token_in_a_prompt_is_text(client: openai.OpenAI, engine: ripple.Engine) -> None:
    written = PROMPT.replace("marbles", "<|mdm_mask|>")
    asked = client.completions.create(model="tiny-llada", prompt=written, echo=True)
    assert asked.choices[0].text.startswith(written) and asked.usage is not None
    assert asked.usage.prompt_tokens == engine.generate(written, length=1).prompt_tokens
    chat = client.chat.completions.create(model="tiny-llada", messages=[{"role": "user", "content": written}])
    assert chat.choices[0].message.role == "assistant"


def test_a_seed_repeats_tokens_and_choices_differ(client: openai.OpenAI) -> None:
    def drawn(**how: Any) -> list[str]:
        how = {"temperature": 6, "n": 3, "max_tokens": 6, "prompt": PROMPT} | how
        told = client.completions.create(model="tiny-llada", **how)
        return [choice.text for choice in told.choices]

    assert drawn(seed=7) == drawn(seed=7) != drawn(seed=70)
    assert drawn(seed=8)[0] == drawn(seed=7)[1], "choice i is drawn with seed + i"
    assert len(set(drawn(seed=7))) == 3 and drawn() != drawn()
    assert drawn(seed=-1) == drawn(seed=-1) != drawn(seed=-2), "any whole number is a seed"
    assert drawn(seed=7 - 2**63) == drawn(seed=7 + 2**64) == drawn(seed=7)


def test_a_stop_string_ends_the_text(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="tiny-llada", prompt=PROMPT).choices[0].text
    told = client.completions.create(model="tiny-llada", prompt=PROMPT, stop=["which"]).choices[0]
    assert told.text == whole[: whole.index("which")] and told.finish_reason == "stop"
    long = whole[whole.index("which") :][:20]
    again = client.completions.create(model="tiny-llada", prompt=PROMPT, stop=long).choices[0]
    assert len(long) == 20 and again.text == told.text, "a string may be longer than a list of them"


def test_a_chat_answers_in_the_chat_template(client: openai.OpenAI, engine: ripple.Engine) -> None:
    expected = engine.generate(CHAT, length=LENGTH, stop_at_end=True)
    told = client.chat.completions.create(model="tiny-llada", messages=CHAT, max_completion_tokens=LENGTH)
    assert told.choices[0].message.role == "assistant"
    assert told.choices[0].message.content == expected.text
    parts = [{"role": "user", "content": [{"type": "text", "text": CHAT[0]["content"]}]}]
    again = client.chat.completions.create(model="tiny-llada", messages=parts)
    assert again.choices[0].message.content == expected.text


def test_both_routes_take_both_names_of_the_length(client: openai.OpenAI) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        told = client.completions.create(model="tiny-llada", prompt=PROMPT, extra_body={name: 7})
        chat = client.chat.completions.create(model="tiny-llada", messages=CHAT, extra_body={name: 7})
        assert told.usage is not None and chat.usage is not None
        assert told.usage.completion_tokens == chat.usage.completion_tokens == 7


def test_an_assistant_of_the_history_may_have_said_nothing(client: openai.OpenAI) -> None:
    def answered(**silence: Any) -> str | None:
        history: Any = [*CHAT, {"role": "assistant"} | silence, {"role": "user", "content": "Go on."}]
        return client.chat.completions.create(model="tiny-llada", messages=history).choices[0].message.content

    assert answered(content=None) == answered() == answered(content="") == answered(content=[])


def test_a_stream_joins_to_the_text_and_has_usage_in_its_last_chunk_alone(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="tiny-llada", prompt=PROMPT)
    options: Any = {"include_usage": True}
    chunks = list(
        client.completions.create(model="tiny-llada", prompt=PROMPT, stream=True, stream_options=options)
    )
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole.choices[0].text
    assert len(chunks) > 3, "text comes as it becomes final"
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert [c.finish_reason for chunk in chunks[:-1] for c in chunk.choices].count("length") == 1
    assert chunks[-2].choices[0].finish_reason == "length" and len({chunk.id for chunk in chunks}) == 1
    without = list(client.completions.create(model="tiny-llada", prompt=PROMPT, stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in without)


def test_a_chat_streams_its_role_first_and_several_choices_side_by_side(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="tiny-llada", messages=CHAT).choices[0].message.content
    chunks = list(client.chat.completions.create(model="tiny-llada", messages=CHAT, stream=True, n=2))
    texts = ["", ""]
    for number, chunk in enumerate(chunks):
        (choice,) = chunk.choices
        assert (choice.delta.role == "assistant") == (number < 2)
        texts[choice.index] += choice.delta.content or ""
    assert texts == [whole, whole]
    ends = [choice.index for chunk in chunks for choice in chunk.choices if choice.finish_reason == "length"]
    assert sorted(ends) == [0, 1]


def test_a_choice_that_has_ended_says_so_while_others_go_on(client: openai.OpenAI) -> None:
    """The second prompt is answered in a few tokens, the first is decoded to the end of a long canvas."""
    how: dict[str, Any] = {
        "max_tokens": 64,
        "stop": [" answer"],
        "extra_body": {"ripple": {"decoder": "default"}},
    }
    stream = client.completions.create(
        model="tiny-llada", prompt=["Question: 1 + 1\nAnswer:\n", PROMPT], stream=True, **how
    )
    told = [choice for chunk in stream for choice in chunk.choices]
    ends = {choice.index: at for at, choice in enumerate(told) if choice.finish_reason}
    first = min(ends, key=ends.__getitem__)
    assert any(choice.index != first and choice.text for choice in told[ends[first] :])


def test_the_async_client_streams_too(server: Server) -> None:
    async def streamed() -> str:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            stream = await client.chat.completions.create(model="tiny-llada", messages=CHAT, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    told = server.client().chat.completions.create(model="tiny-llada", messages=CHAT)
    assert asyncio.run(streamed()) == told.choices[0].message.content


def test_logprobs_are_those_of_the_commits(client: openai.OpenAI, engine: ripple.Engine) -> None:
    expected = engine.generate(PROMPT, length=LENGTH, stop_at_end=True, trace=True)
    p: dict[int, float] = {}
    for event in expected.trace or []:
        if event.kind == "commit":
            p.update(zip(event.data["pos"], event.data["p"], strict=True))
    told = client.completions.create(model="tiny-llada", prompt=PROMPT, logprobs=1, echo=True)
    text, scored = told.choices[0].text, told.choices[0].logprobs
    assert text == PROMPT + expected.text and scored is not None
    assert scored.tokens is not None and scored.token_logprobs is not None and scored.text_offset is not None
    assert "".join(scored.tokens) == text
    assert all(
        text[at:].startswith(piece) for at, piece in zip(scored.text_offset, scored.tokens, strict=True)
    )
    n = expected.prompt_tokens
    assert scored.token_logprobs[:n] == [None] * n, "nobody predicted the prompt"
    assert scored.token_logprobs[n:] == pytest.approx([math.log(p[pos]) for pos in sorted(p)])


def test_streamed_logprobs_are_the_whole_answers(client: openai.OpenAI) -> None:
    how: Any = {"model": "tiny-llada", "messages": CHAT, "logprobs": True, "stop": ["all"]}
    whole = client.chat.completions.create(**how).choices[0]
    rows: list[Any] = []
    text = ""
    for chunk in client.chat.completions.create(**how, stream=True):
        text += chunk.choices[0].delta.content or ""
        if chunk.choices[0].logprobs is not None:
            rows += chunk.choices[0].logprobs.content
    assert whole.logprobs is not None and rows == whole.logprobs.content
    assert text == whole.message.content == "".join(row.token for row in rows)


def test_streamed_logprobs_end_with_the_answer(client: openai.OpenAI) -> None:
    how: Any = {"model": "tiny-llada", "prompt": "Question: 2 + 3\nAnswer:\n", "logprobs": 1}
    whole = client.completions.create(**how)
    assert whole.choices[0].finish_reason == "stop" and whole.choices[0].logprobs is not None
    told = [c.logprobs for chunk in client.completions.create(**how, stream=True) for c in chunk.choices]
    tokens = [token for one in told if one is not None for token in one.tokens or ()]
    assert tokens == whole.choices[0].logprobs.tokens, "what fills the canvas after the end is no answer"
    assert whole.usage is not None and len(tokens) == whole.usage.completion_tokens


def test_fields_that_stock_clients_send_are_accepted_where_they_change_nothing(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(model="tiny-llada", messages=CHAT)
    told = client.chat.completions.create(
        model="tiny-llada", messages=CHAT, frequency_penalty=0, presence_penalty=0, top_p=1, user="me",
        logit_bias={}, response_format={"type": "text"}, service_tier="auto", store=False,
        metadata={"a": "b"},
        extra_body={"repetition_penalty": 1.0, "ignore_eos": False, "top_k": -1, "tools": [], "stop": None},
    )  # fmt: skip
    assert told.choices[0].message.content == plain.choices[0].message.content
    ignored = client.completions.create(model="tiny-llada", prompt=PROMPT, extra_body={"ignore_eos": True})
    assert ignored.choices[0].text.startswith("We have")
