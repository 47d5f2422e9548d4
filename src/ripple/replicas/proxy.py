"""What Ray Serve's own proxies say, as OpenAI's clients know it.

A proxy speaks for itself where no replica can: with plain text when nothing is deployed or a queue is full,
not at all when the replica that held a request has died. Answers of the application pass through.
"""

from __future__ import annotations

import json

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ripple.server.failures import Refusal

LOST = "The replica that decoded this request was lost; send it again."
TOLD = {  # what a proxy's own status means
    404: (503, "No model is served here yet; try again."),
    408: (504, "The request took longer than the proxy allows."),
    429: (429, "Too many requests wait; try again."),
    503: (503, "No replica can take this request now; try again."),
}
RETRY = {"Retry-After": "1"}
OWN_PATHS = "/-/"  # of Ray Serve: its routes and its health


def middlewares() -> list[Middleware]:
    """Return what RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH is to name."""
    return [Middleware(ProxyAnswers)]


class ProxyAnswers:
    """Stands around a proxy's application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or scope["path"].startswith(OWN_PATHS):
            return await self._app(scope, receive, send)
        answer = _Answer(send)
        await self._app(scope, receive, answer.take)
        refusal = answer.refusal()
        if refusal is None:
            return
        if answer.is_stream:  # its status has gone out: the last event says what happened
            event = f"data: {json.dumps(refusal.body())}\n\n".encode()
            await send({"type": "http.response.body", "body": event, "more_body": False})
        else:
            await refusal.response()(scope, receive, send)


class _Answer:
    """One answer on its way to the client."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_started = self._is_ended = False
        self._status: int | None = None  # of an answer of the proxy's own, which is held back
        self.is_stream = False

    async def take(self, message: Message) -> None:
        """Pass a message on, unless the proxy speaks for itself."""
        if message["type"] == "http.response.start":
            kind = _header(message, b"content-type")
            if kind.startswith(b"text/plain") and message["status"] in TOLD:
                self._status = message["status"]
                return
            self._is_started = True
            self.is_stream = kind.startswith(b"text/event-stream")
        elif self._status is not None:
            return
        elif message["type"] == "http.response.body":
            self._is_ended = not message.get("more_body", False)
        await self._send(message)

    def refusal(self) -> Refusal | None:
        """Return what the client is to be told in place of an answer, or behind a stream that was cut off."""
        if self._status is not None:
            status, sentence = TOLD[self._status]
            return Refusal(status, sentence, headers=RETRY)
        if not self._is_started or (self.is_stream and not self._is_ended):
            return Refusal(503, LOST, code="replica_lost", headers=RETRY)
        return None


def _header(message: Message, name: bytes) -> bytes:
    headers = message.get("headers", ())
    return next((bytes(value) for key, value in headers if bytes(key).lower() == name), b"")
