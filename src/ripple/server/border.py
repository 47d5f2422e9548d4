"""What stands before every route: the key, an id and a line in the access log."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import logging
import re
import time
import uuid
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ripple.server.failures import Refusal

if TYPE_CHECKING:
    from ripple.server.decoding import Decoding
    from ripple.server.service import Service

CLIENT_GONE = 499  # a status for the log
OPEN_TO_ALL = ("/health",)

log = logging.getLogger("ripple.access")


class Border:
    """Checks a request before any route sees it, and logs it afterwards."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._limits = service.limits
        self._metrics = service.metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        visit = Visit(scope, self._limits.log_prompts)
        answered = visit.noting(send)
        if scope["method"] == "HEAD":  # the server leaves out the body
            scope = {**scope, "method": "GET"}
        try:
            self._check_key(scope)
            await self._app(scope, receive, answered)
        except Refusal as told:
            self._metrics.refused(told.status)
            await told.response()(scope, receive, answered)
        except asyncio.CancelledError:  # the server ends, and waits no longer for a client that is slow
            if visit.status:
                visit.state["is_gone"] = True
            else:
                await Refusal(503, "The server is stopping.").response()(scope, receive, answered)
        finally:
            visit.tell()

    def _check_key(self, scope: Scope) -> None:
        key = self._limits.api_key
        if not key or scope["path"] in OPEN_TO_ALL:
            return
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() == "basic":  # of a browser, which asks its user: any name, the key as password
            try:
                given = base64.b64decode(given, validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                given = ""
        elif scheme.lower() != "bearer":
            given = ""
        if not hmac.compare_digest(given.strip().encode(), key.encode()):
            asks = "Bearer" if scope["path"].startswith("/v1") else 'Basic realm="ripple"'
            message = "A valid API key is needed: Authorization: Bearer KEY."
            raise Refusal(401, message, headers={"WWW-Authenticate": asks})


class Visit:
    """What is noted of one request for the access log."""

    def __init__(self, scope: Scope, with_prompts: bool) -> None:
        self.state: dict[str, Any] = scope.setdefault("state", {})
        self.status = 0
        self._start = time.perf_counter()
        self._scope = scope
        self._with_prompts = with_prompts
        given = Headers(scope=scope).get("x-request-id", "")
        self._id = given if re.fullmatch(r"[\w.:-]{1,64}", given) else uuid.uuid4().hex

    def noting(self, send: Send) -> Send:
        """Return a `send` that notes the status and tells the client the request's id."""

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = self._id
            await send(message)

        return noted

    def tell(self) -> None:
        """Write the line."""
        if not log.isEnabledFor(logging.INFO):
            return
        client, decoding = self._scope.get("client"), self.state.get("decoding")
        line = {
            "time": round(time.time(), 3), "id": self._id, "client": client[0] if client else None,
            "method": self._scope["method"], "path": self._scope["path"],
            "status": self._outcome(decoding),
            "seconds": round(time.perf_counter() - self._start, 6), **(_counts(decoding) if decoding else {}),
        }  # fmt: skip
        if self._with_prompts and decoding is not None:
            line |= {"body": decoding.said(), "texts": [result.text for result in decoding.results]}
        log.info(json.dumps(line))

    def _outcome(self, decoding: Decoding | None) -> int:
        """Return the status, or the one that a stream would have had if all had been known at its start."""
        if self.state.get("is_gone"):
            return CLIENT_GONE
        return (decoding.failed if decoding else None) or self.status


def _counts(decoding: Decoding) -> dict[str, Any]:
    results = decoding.results
    return {
        "requests": len(decoding.tickets), "prompt_tokens": sum(result.prompt_tokens for result in results),
        "completion_tokens": sum(len(result.new_tokens) for result in results),
        "nfe": sum(result.nfe for result in results), "finish": [result.finish for result in results],
    }  # fmt: skip
