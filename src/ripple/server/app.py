"""The FastAPI application: its routes, and how failures are told."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

import ripple
from ripple.errors import RippleError
from ripple.server import documents
from ripple.server.bodies import read
from ripple.server.border import CLIENT_GONE, Border
from ripple.server.decoding import Decoding
from ripple.server.failures import Refusal
from ripple.server.pages import add_pages
from ripple.server.schema import ChatRequest, CompletionRequest, DecodeRequest
from ripple.server.service import LARGE_BODY, Service
from ripple.server.streams import ClientGone, EventStream, unless_gone


def create_app(service: Service) -> FastAPI:
    """Return the application that serves one model; the service is closed when the application ends."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="Ripple", version=ripple.__version__, description=documents.ABOUT, lifespan=lifespan,
        docs_url=None, redoc_url=None, redirect_slashes=False,
    )  # fmt: skip
    _add_decoding(app, service)
    _add_reports(app, service)
    _add_failures(app, service)
    add_pages(app, service)
    app.add_middleware(Border, service=service)
    documents.complete(app, has_key=bool(service.limits.api_key))
    return app


def _add_decoding(app: FastAPI, service: Service) -> None:
    async def answer(kind: type[DecodeRequest], http: Request) -> Response:
        raw = await read(http, service.limits)
        preparing = service.prepare(kind, raw)
        body, requests = await (unless_gone(http.receive, preparing) if len(raw) > LARGE_BODY else preparing)
        del raw
        http.state.decoding = decoding = Decoding(service, body, requests)
        if body.stream:
            return EventStream(decoding.stream(), decoding.close, service.limits.timeout)
        whole = await unless_gone(http.receive, decoding.whole())
        has_trace = any(request.options.trace for request in requests)
        text = await asyncio.to_thread(json.dumps, whole) if has_trace else json.dumps(whole)
        return Response(text, media_type="application/json")

    @app.post("/v1/completions", **documents.COMPLETIONS)
    async def completions(http: Request) -> Response:
        """Continue each prompt."""
        return await answer(CompletionRequest, http)

    @app.post("/v1/chat/completions", **documents.CHATS)
    async def chat_completions(http: Request) -> Response:
        """Answer the last message of a conversation."""
        return await answer(ChatRequest, http)


def _add_reports(app: FastAPI, service: Service) -> None:
    started = int(time.time())
    model = {
        "id": service.name, "object": "model", "created": started, "owned_by": "ripple",
        "max_model_len": service.engine.model.config.max_positions,
    }  # fmt: skip

    @app.get("/v1/models", responses=documents.MODELS)
    async def models() -> dict[str, Any]:
        """List the one model that is served."""
        return {"object": "list", "data": [model]}

    @app.get("/v1/models/{name:path}", responses=documents.MODEL)
    async def one_model(name: str) -> dict[str, Any]:
        """Tell what is known of a model."""
        service.check_model(name)
        return model

    @app.get("/health", responses=documents.HEALTH)
    async def health() -> dict[str, Any]:
        """Tell whether requests are taken and decoded."""
        if not service.is_well:
            raise Refusal(503, "The engine has stopped.", headers={"Retry-After": str(service.retry_s)})
        return {"status": "ok", "running": service.n_running, "waiting": service.n_waiting}

    @app.get("/metrics", response_class=PlainTextResponse, responses=documents.METRICS)
    async def metrics() -> Response:
        """Tell what was done and what is being done, for Prometheus."""
        return Response(await service.metrics_text(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/version", responses=documents.VERSION)
    async def version() -> dict[str, str]:
        """Tell the version of Ripple."""
        return {"version": ripple.__version__}


def _add_failures(app: FastAPI, service: Service) -> None:
    @app.exception_handler(ClientGone)
    async def gone(http: Request, error: Exception) -> Response:
        return Response(status_code=CLIENT_GONE)

    @app.exception_handler(HTTPException)
    async def http_error(http: Request, error: HTTPException) -> Response:
        sentence = {404: f"There is no {http.url.path[:200]} here.", 405: "The method is not allowed here."}
        told = sentence.get(error.status_code, f"{str(error.detail).rstrip('.')}.")
        return service.refuse(Refusal(error.status_code, told, headers=error.headers)).response()

    async def known(http: Request, error: Exception) -> Response:
        return service.refuse(error).response()

    for kind in (Refusal, RippleError, Exception):
        app.exception_handler(kind)(known)
