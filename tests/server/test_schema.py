"""The OpenAPI schema is truthful: what it allows is answered as it says, and nothing makes a 5xx."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import ripple
from ripple.caches import CACHES
from ripple.decoders import DECODERS
from ripple.fields import fields_of
from tests.server.conftest import CHAT, PROMPT, Server, serving

CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
]  # fmt: skip
ROUTES = {
    "/v1/completions", "/v1/chat/completions", "/v1/models", "/v1/models/{name}", "/health", "/metrics",
    "/version",
}  # fmt: skip
EXAMPLES = 25  # of each route


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--length", "8", "--max-length", "8", "--queue", "8") as one:
        yield one


@pytest.fixture(scope="module")
def schema(server: Server) -> Any:
    with server.http() as http:
        return http.get("/openapi.json").json()


def test_the_schema_lists_every_route_and_no_status_that_never_comes(schema: Any) -> None:
    assert set(schema["paths"]) == ROUTES
    routes = [route for path in schema["paths"].values() for route in path.values()]
    statuses = {status for route in routes for status in route["responses"]}
    assert "422" not in statuses and {"200", "400", "429", "503"} <= statuses


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from ([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from references(one)


def test_every_shape_is_referred_to_and_every_reference_has_its_shape(schema: Any) -> None:
    named = {reference.removeprefix("#/components/schemas/") for reference in references(schema)}
    assert named == set(schema["components"]["schemas"])


@pytest.mark.parametrize(
    ("path", "shape"),
    [("/v1/completions", "CompletionChunk"), ("/v1/chat/completions", "ChatCompletionChunk")],
)
@pytest.mark.parametrize(
    "body",
    [
        {}, {"n": 2, "logprobs": 1}, {"ripple": {"stream": "canvas", "decoder": "rps"}},
        {"stream_options": {"include_usage": True}}, {"ripple": {"trace": True}},
        {"echo": True, "logprobs": 1},
    ],
)  # fmt: skip
def test_answers_and_events_have_no_field_that_the_schema_does_not_declare(
    server: Server, schema: Any, path: str, shape: str, body: dict[str, Any]
) -> None:
    said: dict[str, Any] = {"prompt": PROMPT} | body
    if "chat" in path:
        said = {"messages": CHAT} | {name: value for name, value in body.items() if name != "echo"}
        said |= {"logprobs": True} if "logprobs" in body else {}
    kinds = schema["paths"][path]["post"]["responses"]["200"]["content"]
    told = kinds["text/event-stream"]["schema"]["properties"]["data"]["contentSchema"]
    assert told["anyOf"][0]["$ref"].endswith(f"/{shape}")
    with server.http() as http:
        *lines, last = http.post(path, json=said | {"stream": True}).text.strip().split("\n\n")
        said["ripple"] = {**said.get("ripple", {}), "stream": "text"}
        whole = http.post(path, json=said | {"stream_options": None})
    assert last == "data: [DONE]" and len(lines) > 1 and whole.status_code == 200
    every = schema["components"]["schemas"]
    strict = {**schema, "components": {"schemas": {name: closed(one) for name, one in every.items()}}}
    check = jsonschema.Draft202012Validator(strict | told)
    for line in lines:
        check.validate(json.loads(line.removeprefix("data: ")))
    jsonschema.Draft202012Validator(strict | kinds["application/json"]["schema"]).validate(whole.json())


def closed(shape: Any) -> Any:
    """A shape of ours that allows no field which it does not declare; events of a trace may have more."""
    return shape | {"additionalProperties": False} if "properties" in shape else shape


def test_the_options_of_a_request_are_listed(schema: Any) -> None:
    listed = schema["components"]["schemas"]["RippleOptions"]
    for cls in (ripple.Options, *DECODERS.values(), *CACHES.values()):
        assert set(fields_of(cls)) <= set(listed["properties"]), cls
    assert not listed["additionalProperties"] and "rps" in listed["properties"]["decoder"]["description"]
    check = jsonschema.Draft202012Validator(listed)
    for good in ({"lam": 0.5}, {"lam": "0.5"}, {"length": 8}, {"stream": "canvas"}, {"block": None}):
        check.validate(good)
    for bad in ({"lam": -1}, {"lam": []}, {"length": 0}, {"stream": "video"}, {"lamb": 1}, {"trace": None}):
        assert not check.is_valid(bad), bad


def test_only_health_needs_no_key() -> None:
    with serving("--api-key", "k") as one, one.http(headers={"Authorization": "Bearer k"}) as http:
        schema = http.get("/openapi.json").json()
    assert schema["security"] == [{"key": []}]
    own = {
        path: route.get("security") for path, routes in schema["paths"].items() for route in routes.values()
    }
    assert own == {path: [] if path == "/health" else None for path in ROUTES}


@pytest.mark.parametrize("path", sorted(ROUTES))
def test_what_the_schema_allows_is_answered_as_it_says(server: Server, schema: Any, path: str) -> None:
    (operation,) = (
        one.ok()
        for one in schemathesis.openapi.from_dict(schema).get_all_operations()
        if one.ok().path == path
    )

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        case.call_and_validate(base_url=server.url, checks=CHECKS)

    check()


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"max_tokens": 0}, {"max_tokens": 8.0}, {"max_tokens": "8"}, {"n": 0}, {"n": 129}, {"seed": -1},
        {"max_completion_tokens": 2}, {"max_completion_tokens": 0}, {"prompt": [8.0]}, {"prompt": [[8.0, 9]]},
        {"prompt": [8.5]}, {"metadata": dict.fromkeys(map(str, range(101)), "")}, {"ripple": {"lamb": 1}},
        {"ripple": {"decoder": "rps", "k_max": 3.0}},
        {"seed": 1 << 64}, {"temperature": -1}, {"temperature": 0.5}, {"logprobs": 2}, {"logprobs": 1},
        {"stop": "a" * 40}, {"stop": ["a"] * 16}, {"stop": ["a"] * 17}, {"stop": ""}, {"stop": [""]},
        {"prompt": ""}, {"prompt": []}, {"prompt": [[]]}, {"prompt": [5, 6]}, {"prompt": ["a", 5]},
        {"top_p": 1.0}, {"top_p": 0.5}, {"top_k": -1}, {"suffix": "a"}, {"logit_bias": {}}, {"unknown": 1},
        {"stream_options": {"usage": True}}, {"ripple": {"decoder": []}}, {"ripple": {"decoder": "rps"}},
    ],
)  # fmt: skip
def test_a_body_is_refused_if_and_only_if_the_schema_does_not_allow_it(
    server: Server, schema: Any, fields: dict[str, Any]
) -> None:
    body = {"prompt": "a", "max_tokens": 2} | fields
    whole = schema | {"$ref": "#/components/schemas/CompletionRequest"}
    allowed = jsonschema.Draft202012Validator(whole).is_valid(body)
    with server.http() as http:
        assert http.post("/v1/completions", json=body).status_code == (200 if allowed else 400)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("body", [{}, {"n": 2, "logprobs": 1}, {"stop": "a", "temperature": 2}])
def test_answers_have_the_shape_that_the_schema_gives(
    server: Server, schema: Any, path: str, body: dict[str, Any]
) -> None:
    said: dict[str, Any] = {"messages": CHAT} if "chat" in path else {"prompt": PROMPT}
    if "chat" in path and "logprobs" in body:
        body = body | {"logprobs": True}
    with server.http() as http:
        told = http.post(path, json=said | body)
    assert told.status_code == 200
    (operation,) = (
        one.ok()
        for one in schemathesis.openapi.from_dict(schema).get_all_operations()
        if one.ok().path == path
    )
    operation.validate_response(told)
