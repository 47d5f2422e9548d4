"""What clients are told when something is wrong: OpenAI's shape, the field, one sentence."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import openai
import pytest

from tests.server.conftest import CHAT, PROMPT, Server, serving, until

SHAPE = {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("fields", "param", "told"),
    [
        ({"top_p": 0.5}, "top_p", "cannot be honoured here; leave it out or at 1 or null"),
        ({"frequency_penalty": 1}, "frequency_penalty", "cannot be honoured"),
        ({"best_of": True}, "best_of", "cannot be honoured"),
        ({"tools": [{"type": "function"}]}, "tools", "cannot be honoured"),
        ({"tokens": 5}, "tokens", r"did you mean 'max_tokens'\?"),
        ({"max_tokens": "8"}, "max_tokens", "integer"),
        ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"max_tokens": 2000}, "max_tokens", "must be less than the model's 1024 positions, got 2000"),
        ({"max_completion_tokens": 1024}, "max_completion_tokens", "less than the model's 1024 positions"),
        ({"ripple": {"length": 99999}}, "ripple.length", "ripple.length must be less than the model's 1024"),
        ({"max_tokens": 1020}, "prompt", r"Prompt of \d+ tokens and length 1020 exceed the model's 1024"),
        ({"max_tokens": 4, "max_completion_tokens": 5}, "max_completion_tokens", "5 and max_tokens 4: give"),
        ({"max_tokens": 0, "echo": True}, "max_tokens", "at least 1: a prompt alone cannot be scored here"),
        ({"prompt": [1] * 1025}, "prompt", "The prompt has more tokens than the model's 1024 positions"),
        ({"prompt": "hello " * 40_000}, "prompt", "prompt has more tokens than the model's 1024 positions"),
        ({"prompt": ["a"] * 257}, "prompt", "257 prompts with 1 choices each do not fit the queue of 256"),
        ({"metadata": {str(i): "" for i in range(101)}}, "metadata", "metadata must have at most 100 fields"),
        ({"stream_options": 5}, "stream_options", "stream_options must be an object"),
        ({"temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"logprobs": 5}, "logprobs", "less than or equal to 1"),
        ({"n": 1000}, "n", "less than or equal to 128"),
        ({"stop": [""]}, "stop", "a list of at most 16 non-empty strings"),
        ({"stop": ""}, "stop", "stop is empty"),
        ({"prompt": 5}, "prompt", "a string, a list of strings, a list of token ids"),
        ({"prompt": ""}, "prompt", "prompt is empty"),
        ({"prompt": []}, "prompt", "is empty"),
        ({"prompt": [[5], []]}, "prompt", "none of them empty"),
        ({"prompt": ["a", ""]}, "prompt", "none of them empty"),
        ({"prompt": [5, "a"]}, "prompt", "must be a string, a list"),
        ({"prompt": [99999]}, "prompt", "Token id 99999 is outside the vocabulary"),
        ({"prompt": [-1]}, "prompt", "Token id -1 is outside the vocabulary"),
        ({"prompt": [2005]}, "prompt", "contains the mask token"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "needs stream: true"),
        ({"ripple": {"decoder": "rpss"}}, "ripple.decoder", "Did you mean 'rps'"),
        ({"stop": ["a"] * 17}, "stop", "a list of at most 16 non-empty strings"),
        ({"stream": True, "stream_options": {"usages": True}}, "stream_options.usages",
         "stream_options.usages is not a field that this server knows"),
        ({"ripple": {"lamb": 1}}, "ripple.lamb", "Unknown option 'lamb'. Did you mean 'lam'"),
        ({"ripple": {"strem": "canvas"}}, "ripple.strem", "Did you mean 'stream'"),
        ({"ripple": {"cache": "dul", "seed": 1}}, "ripple.cache", "Did you mean 'dual'"),
        ({"ripple": {"decoder": "rps", "lam": "x"}}, "ripple.lam", "lam"),
        ({"ripple": {"decoder": "confidence", "tau": 7}}, "ripple.tau", r"tau must lie in \(0, 1\]"),
        ({"ripple": {"seed": 1}, "seed": 2}, "ripple.seed", "is 1 and seed 2: give one of them"),
        ({"ripple": {"temperature": 1}, "temperature": 2}, "ripple.temperature", "give one of them"),
        ({"ripple": {"stream": "canvas"}}, "ripple.stream", "needs stream: true"),
        ({"ripple": {"length": 0}}, "ripple.length", "whole number from 1 on"),
        ({"ripple": {"length": 8}, "max_tokens": 9}, "ripple.length", "give one of them"),
        ({"ripple": {"stream": "video"}}, "ripple.stream", "text or canvas"),
        ({"ripple": {"decoder": [1]}}, "ripple", "an object whose values are"),
        ({"ripple": {"decoder": "learn2pd", "filter": "/etc/passwd"}}, "ripple.filter", "names a file"),
        ({"ripple": {"decoder": "rps:standard=(learn2pd:filter=x)"}}, "ripple.filter", "names a file"),
        ({"ripple": {"decoder": "rps:" + "x" * 500}}, "ripple.decoder", "longer than 400 characters"),
        ({"ripple": {"decoder": "rps:pivot=gap"}}, "ripple.decoder", "rps: pivot must be one of"),
        ({"ripple": {"decoder": "rps:pivot=gap", "cache": "dual"}}, "ripple.decoder", "rps: pivot"),
        ({"ripple": {"decoder": "rps:standard=(rps)"}}, "ripple.decoder", "such as confidence, got 'rps'"),
        ({"ripple": {"cache": "d2:masks=0", "decoder": "rps"}}, "ripple.cache", "d2: masks must be"),
        ({"ripple": {"decoder": "rps", "k_max": 0}}, "ripple.k_max", "rps: k_max must be a whole number"),
        ({"ripple": {"temperature": "0,5"}}, "ripple.temperature", "a number of at least 0, got '0,5'"),
        ({"ripple": {"temperature": "-1"}}, "ripple.temperature", "temperature must be at least 0, got -1"),
        ({"ripple": {"lookahead_budget": 0.5}}, "ripple.lookahead_budget", "started with --lookahead-budget"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_a_400_that_names_it(
    client: openai.OpenAI, fields: dict[str, Any], param: str | None, told: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=told) as caught:
        client.completions.create(model="tiny-llada", prompt=PROMPT, extra_body=fields)
    error = caught.value
    assert error.param == param and error.type == "invalid_request_error"
    assert isinstance(error.body, dict) and set(error.body) == SHAPE


@pytest.mark.parametrize(
    ("fields", "param", "told"),
    [
        ({"top_logprobs": 1}, "top_logprobs", "top_logprobs needs logprobs: true"),
        ({"max_tokens": 4, "max_completion_tokens": 5}, "max_completion_tokens", "5 and max_tokens 4: give"),
        ({"messages": None}, "messages", "must be a valid list"),
        ({"messages": [5]}, "messages", r"messages\.0 must be an object"),
        ({"messages": [{"role": "user", "content": None}]}, "messages.0.content", "content is missing"),
        ({"messages": [{"role": "user"}]}, "messages.0.content", "content is missing"),
        ({"messages": [{"role": "user", "content": "a", "tool_call_id": "b"}]}, "messages.0.tool_call_id",
         r"^Error code: 400.*messages\.0\.tool_call_id is not a field that this server knows"),
    ],
)  # fmt: skip
def test_a_wrong_field_of_a_chat_is_a_400_that_names_it(
    client: openai.OpenAI, fields: dict[str, Any], param: str, told: str
) -> None:
    how = {"model": "tiny-llada", "messages": CHAT, "extra_body": fields}
    with pytest.raises(openai.BadRequestError, match=told) as caught:
        client.chat.completions.create(**how)
    assert caught.value.param == param


def test_a_field_that_is_missing_is_said_to_be_so(server: Server) -> None:
    with server.http() as http:
        for path, field in (("completions", "prompt"), ("chat/completions", "messages")):
            told = http.post(f"/v1/{path}", json={"max_tokens": 4})
            assert told.json()["error"]["message"] == f"{field} is missing." and told.status_code == 400


@pytest.mark.parametrize(
    "messages",
    [
        [], [{"role": "robot", "content": "hi"}], [{"role": "user"}], [{"role": "system", "content": "hi"}],
        [{"role": "user", "content": [{"type": "image"}]}],
    ],
)  # fmt: skip
def test_messages_are_checked(client: openai.OpenAI, messages: Any) -> None:
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="tiny-llada", messages=messages)


def test_bodies_that_are_no_json_objects_are_refused(server: Server) -> None:
    deep = "[" * 100_000
    with server.http() as http:
        for content in (b"", b"{", b"[]", b"5", b'"a"', b"\xff\xfe", deep.encode(), b'{"prompt": "\\ud800"}'):
            told = post(http, content)
            assert told.status_code == 400 and set(told.json()["error"]) == SHAPE, content[:20]
        for content in (b'{"\\ud800": 1}', b'{"prompt": "a", "ripple": {"\\ud800": "\\ud800"}}'):
            assert post(http, content).status_code == 400
        assert post(http, b'{"prompt": "a", "temperature": NaN}').status_code == 400
        assert post(http, b'{"prompt": "a", "seed": ' + b"9" * 5000 + b"}").status_code == 400


def test_other_content_types_routes_and_methods_are_refused_in_the_same_shape(server: Server) -> None:
    with server.http() as http:
        form = http.post("/v1/completions", data={"prompt": "a"})
        text = http.post("/v1/completions", content="{}", headers={"Content-Type": "text/plain"})
        assert form.status_code == text.status_code == 415
        missing, method = http.get("/v2"), http.get("/v1/completions")
        assert missing.status_code == 404 and method.status_code == 405 and method.headers["allow"] == "POST"
        slash = http.post("/v1/completions/", json={"prompt": "a"})
        assert slash.status_code == 404, "no redirect to wherever the client says that it is"
        for verb in ("PUT", "PATCH", "DELETE"):
            assert http.request(verb, "/v1/completions", content=b"x" * 100).status_code == 405
        for told in (form, text, missing, method, slash):
            assert set(told.json()["error"]) == SHAPE
        assert 'ripple_refused_total{model_name="tiny-llada",status="415"}' in http.get("/metrics").text


def test_head_is_answered_as_get_without_a_body(server: Server) -> None:
    with server.http() as http:
        for path in ("/health", "/", "/docs", "/v1/models", "/metrics"):
            head = http.head(path)
            assert head.status_code == 200 and head.content == b"" and int(head.headers["content-length"])
        assert http.head("/v1/completions").status_code == 405 and http.head("/v2").status_code == 404


def test_a_body_that_is_too_large_is_a_413(server: Server) -> None:
    def parts() -> Any:
        for _ in range(90):
            yield b"x" * 50_000

    with server.http() as http:
        for content in (b"x" * (5 << 20), parts()):
            told = post(http, content)
            assert told.status_code == 413 and "at most 4194304 bytes" in told.json()["error"]["message"]


def test_the_log_has_a_line_per_request_and_prompts_only_if_wanted(server: Server) -> None:
    with server.http() as http:
        told = http.post(
            "/v1/chat/completions", json={"messages": CHAT, "max_tokens": 8}, headers={"X-Request-Id": "me-1"}
        )
    assert told.headers["x-request-id"] == "me-1"
    until(lambda: any('"me-1"' in line for line in server.lines))
    line = next(json.loads(line) for line in server.lines if '"me-1"' in line)
    assert line["status"] == 200 and line["completion_tokens"] == 8 and line["path"] == "/v1/chat/completions"
    assert line["body"]["messages"] == CHAT, "--log-prompts was given"


def test_a_stream_that_fails_is_logged_as_what_it_would_have_been() -> None:
    with serving("--timeout", "0.3") as one, one.http() as http:
        body = {"prompt": PROMPT, "max_tokens": 400, "ignore_eos": True, "ripple": {"decoder": "default"}}
        told = http.post("/v1/completions", json=body | {"stream": True}, headers={"X-Request-Id": "me-3"})
        assert told.status_code == 200 and '"timeout"' in told.text
        until(lambda: any('"me-3"' in line for line in one.lines))
    (line,) = (json.loads(line) for line in one.lines if '"me-3"' in line)
    assert line["status"] == 504


def post(http: httpx.Client, content: Any) -> httpx.Response:
    return http.post("/v1/completions", content=content, headers={"Content-Type": "application/json"})


def test_what_is_not_here_is_counted_among_the_refused(server: Server) -> None:
    def refused(http: httpx.Client, status: int) -> float:
        found = re.search(rf'^ripple_refused_total{{.*"{status}"}} (\S+)$', http.get("/metrics").text, re.M)
        return float(found[1]) if found else 0

    with server.http() as http:
        before = refused(http, 404), refused(http, 405)
        assert http.post("/v1/embeddings").status_code == 404
        assert http.get("/v1/completions").status_code == 405
        assert (refused(http, 404), refused(http, 405)) == (before[0] + 1, before[1] + 1)
