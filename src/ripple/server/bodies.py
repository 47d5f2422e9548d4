"""Bodies of requests: read within limits of size and time, and counted before anything is made of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Receive

from ripple.server.failures import Refusal, sentence_of
from ripple.server.options import ServerOptions
from ripple.server.schema import DecodeRequest
from ripple.server.streams import ClientGone

BODY_S = 60.0  # a body must have arrived within this time
DISCARDED = 8  # times the largest body are read from a client whose body is too large, so that it reads why
MOST_PARTS = 16_000  # texts, names, lists and objects of a body, one for each prompt not among them
CLOSE = {"Connection": "close"}

Parsed = TypeVar("Parsed", bound=DecodeRequest)


async def read(http: Request, limits: ServerOptions) -> bytes:
    """Return a whole body, if it is called JSON, small enough and there in time."""
    kind = Headers(scope=http.scope).get("content-type", "").partition(";")[0].strip().lower()
    declared, most = http.headers.get("content-length", ""), limits.max_body
    is_large = declared.isdecimal() and int(declared) > most
    try:
        async with asyncio.timeout(min(BODY_S, limits.timeout)):
            body = await _read(http.receive, 0 if is_large or kind != "application/json" else most, most)
    except TimeoutError:
        raise Refusal(408, "The body did not arrive in time.", headers=CLOSE) from None
    if kind != "application/json":
        raise Refusal(415, "The body must be JSON: send Content-Type: application/json.")
    if body is None:
        raise Refusal(413, f"The body must have at most {most} bytes.", headers=CLOSE)
    return body


async def _read(receive: Receive, most: int, unit: int) -> bytes | None:
    """Read a body; one that is larger than `most` is read for a while and dropped."""
    parts: list[bytes] = []
    size, more = 0, True
    while more and size <= DISCARDED * unit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size, more = size + len(part), message.get("more_body", False)
        if size <= most:
            parts.append(part)
    return b"".join(parts) if size <= most else None


def parsed(kind: type[Parsed], raw: bytes, n_prompts: int) -> Parsed:
    """Return a body as what it is to be, if it has room for no more than so many prompts."""
    try:
        return kind.model_validate(_value(raw, MOST_PARTS + n_prompts))
    except ValidationError as error:
        raise Refusal(400, *sentence_of(error.errors(include_url=False, include_input=False))) from None


def _value(raw: bytes, most: int) -> Any:
    try:
        text = raw.decode("utf-8-sig")
        if has_more_parts(text, most):
            raise Refusal(400, f"The body has more than {most} texts, names, lists and objects.")
        return json.loads(text)
    except (ValueError, RecursionError):  # numbers of thousands of digits among them
        raise Refusal(400, "The body is not JSON.") from None


def has_more_parts(text: str, most: int) -> bool:
    """Say whether JSON has more strings, lists and objects than that, without parsing it.

    Each of them becomes an object of Python's: four megabytes of empty lists would be a hundred of those, and
    seconds of garbage collection. A list of numbers alone costs little.
    """
    bare = text.replace("\\\\", "").replace('\\"', "")  # every quote that is left begins or ends a string
    n_strings = bare.count('"') // 2
    if n_strings > most:
        return True
    between = "".join(bare.split('"')[::2])
    return n_strings + between.count("[") + between.count("{") > most
