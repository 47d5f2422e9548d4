"""What a proxy says for itself is told as OpenAI's clients know it; everything else passes through."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ripple.replicas.proxy import ProxyAnswers, middlewares


async def ask(app: ASGIApp, path: str = "/v1/completions") -> httpx.Response:
    transport = httpx.ASGITransport(ProxyAnswers(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://proxy") as client:
        return await client.get(path)


def answer(app: ASGIApp, path: str = "/v1/completions") -> httpx.Response:
    return asyncio.run(ask(app, path))


async def lost(scope: Scope, receive: Receive, send: Send) -> None:
    """A replica that died before it answered."""


async def cut_off(scope: Scope, receive: Receive, send: Send) -> None:
    """A replica that died while it streamed."""
    headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'data: {"a": 1}\n\n', "more_body": True})


def test_a_lost_replica_is_a_503_that_says_when_to_try_again() -> None:
    told = answer(lost)
    assert (told.status_code, told.headers["retry-after"]) == (503, "1")
    assert told.json()["error"] == {
        "message": "The replica that decoded this request was lost; send it again.", "type": "server_error",
        "param": None, "code": "replica_lost",
    }  # fmt: skip


def test_a_stream_that_is_cut_off_ends_with_the_error_as_an_event() -> None:
    first, last = answer(cut_off).text.strip().split("\n\n")
    assert first == 'data: {"a": 1}'
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "replica_lost"


@pytest.mark.parametrize("status, told", [(404, 503), (408, 504), (429, 429), (503, 503)])
def test_what_the_proxy_says_in_plain_text_becomes_openais_error(status: int, told: int) -> None:
    said = answer(PlainTextResponse("internals: DeploymentID(name='x')", status))
    assert said.status_code == told and said.headers["retry-after"] == "1"
    assert set(said.json()["error"]) == {"message", "type", "param", "code"} and "internals" not in said.text


def test_answers_of_the_application_pass_through() -> None:
    ours = JSONResponse({"error": {"code": "not_found"}}, 404)
    for app in (ours, JSONResponse({"a": 1}), PlainTextResponse("metrics 1")):
        said = answer(app)
        assert (said.content, said.status_code) == (app.body, app.status_code)


def test_rays_own_paths_are_left_alone() -> None:
    said = answer(PlainTextResponse("unhealthy", 503), "/-/healthz")
    assert (said.status_code, said.text) == (503, "unhealthy")


def test_what_ray_is_told_to_import_is_there() -> None:
    assert [one.cls for one in middlewares()] == [ProxyAnswers]
