"""Failures as OpenAI's clients know them: `{"error": {"message", "type", "param", "code"}}` and a status."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

from fastapi.responses import Response

from ripple.errors import EngineStopped, QueueFull, RequestError, RippleError, one_sentence
from ripple.server.schema import MOST_STOPS

TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
CODES = {
    401: "invalid_api_key", 404: "not_found", 405: "method_not_allowed", 408: "request_timeout",
    413: "body_too_large", 415: "unsupported_media_type", 429: "queue_full", 431: "headers_too_large",
    503: "engine_stopped", 504: "timeout",
}  # fmt: skip


class Refusal(Exception):
    """What a client is told instead of an answer."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status = status
        self.message = one_sentence(message)
        self.param = param
        self.code = code or CODES.get(status)
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """Return the failure as OpenAI writes it."""
        kind = TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """Return the failure as a response."""
        return Response(json.dumps(self.body()), self.status, self.headers, "application/json")


def refusal(error: Exception, retry_s: int = 1) -> Refusal:
    """Return what a client is told of an error; whatever is not its own fault is told without details."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, QueueFull):
        return Refusal(429, str(error), headers={"Retry-After": str(retry_s)})
    if isinstance(error, EngineStopped):
        return Refusal(503, "The engine has stopped.", headers={"Retry-After": str(retry_s)})
    if isinstance(error, RippleError) and not isinstance(error, RequestError):
        return Refusal(400, str(error))
    return Refusal(500, "The request failed while it was decoded; the server's log says why.")


def refused_option(error: RippleError, given: Mapping[str, Any], outer: Set[str]) -> Refusal:
    """Return what a client is told of a wrong decoding option, with its field.

    `given` is the client's object `ripple`, `outer` the options that are fields of OpenAI's. The field is the
    first one that the sentence names, for what follows may be a list of all that is known; or else the one
    whose value begins with a word of it, as in "rps: pivot must be ...".
    """
    sentence = str(error)
    heads = {name: _WORD.match(value) for name, value in given.items() if isinstance(value, str)}
    fields = {name: f"ripple.{name}" for name in given} | {name: name for name in outer}
    owners = {head[0]: f"ripple.{name}" for name, head in heads.items() if head is not None}
    words = _WORD.findall(sentence)
    named = [known[word] for known in (fields, owners) for word in words if word in known]
    return Refusal(400, sentence, named[0] if named else "ripple")


_WORD = re.compile(r"[\w-]+")


def sentence_of(faults: Sequence[Mapping[str, Any]]) -> tuple[str, str | None]:
    """Return the first fault of a body in one sentence, and the field that it names."""
    fault = faults[0]
    path, facts = [str(part) for part in fault["loc"]], fault.get("ctx", {})
    if "field" in facts:  # of an object that may be part of another
        field = ".".join([*path, str(facts["field"])])
        return f"{field} {fault['msg']}.", field
    if not path:
        return "The body must be a JSON object.", None
    field = path[0]
    same = [other for other in faults if other["loc"][:1] == fault["loc"][:1]]
    many = len({other["loc"] for other in same}) > 1
    where = field if len(path) < 2 or many else ".".join(path)
    whole = [other for other in same if len(other["loc"]) == 2] if many else [fault]  # not of its members
    if any(other["type"] in ("too_short", "string_too_short") for other in whole):
        return f"{where} is empty; give at least one.", field
    if many and field in _SHAPES:
        return f"{field} must be {_SHAPES[field]}.", field
    if fault["type"] in _KINDS:
        return f"{where} {_KINDS[fault['type']]}.", field
    message = str(fault["msg"]).replace("Input should", "must", 1).removeprefix("Value ").rstrip(".")
    return f"{where} {message}.", field


_KINDS = {  # what pydantic says in Python's words
    "missing": "is missing", "model_type": "must be an object", "dict_type": "must be an object",
}  # fmt: skip
_SHAPES = {  # of fields that may be several things
    "prompt": "a string, a list of strings, a list of token ids or a list of lists of token ids, none of "
    "them empty",
    "stop": f"a non-empty string or a list of at most {MOST_STOPS} non-empty strings",
    "messages": "a list of {'role': ..., 'content': ...} whose content is text or a list of text parts",
    "ripple": "an object whose values are text, numbers, true, false or null",
}
