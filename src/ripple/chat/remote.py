"""A conversation with a server: one streamed request per turn, over the standard library's HTTP."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from ripple.chat.conversation import SentMessage, Turn
from ripple.errors import RippleError
from ripple.fields import fields_of
from ripple.options import Options
from ripple.trace import Event

TIMEOUT_S = 600.0  # of silence
_TOP_LEVEL = ("seed", "temperature", "stop")  # options that OpenAI's interface has, too
Json = dict[str, Any]


class RemoteModel:
    """Answers with a server's model."""

    def __init__(self, url: str, key: str | None = None, model: str | None = None) -> None:
        parts = _parts(url)
        self.url = url
        self._host, self._port, self._secure = parts.hostname or "", parts.port, parts.scheme == "https"
        path = parts.path.rstrip("/")
        self._path = path if path.endswith("/v1") else f"{path}/v1"
        self._key = (key or "").strip()  # a key from a file ends with its line
        self._pieces: dict[str, str] = {}
        self.name = model or self._first_model()

    def check(self, options: Options) -> None:
        """Do nothing: the server knows what its model can do."""

    def piece(self, token: int) -> str:
        """Return a token's text, if the server has told it."""
        return self._pieces.get(str(token), f"<{token}>")

    def answer(
        self,
        messages: list[SentMessage],
        table: Mapping[str, Any],
        on_event: Callable[[Event], None],
        watch: bool,
    ) -> Turn:
        """Ask the server; whoever interrupts closes the connection, which cancels the request there."""
        self._pieces.clear()
        try:
            return self._read(self._stream(self._body(messages, Options.of(table), watch, table)), on_event)
        except RippleError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise RippleError(f"{self.url} sends something that is no answer.") from error

    def _read(self, chunks: Iterator[Json], on_event: Callable[[Event], None]) -> Turn:
        """Return what the chunks of an answer add up to."""
        text, n_tokens, cost = "", 0, Json()
        for chunk in chunks:
            for told in chunk.get("ripple", {}).get("events", ()):
                self._pieces |= chunk["ripple"]["pieces"]
                on_event(_event(told))
            for choice in chunk["choices"]:
                part = choice["delta"].get("content") or ""
                text += part
                if part:
                    on_event(Event("text", 0.0, {"text": part}))
                cost = choice.get("ripple", cost)
            n_tokens = (chunk.get("usage") or {}).get("completion_tokens", n_tokens)
        if not cost:
            raise RippleError(f"The answer of {self.url} ended too early.")
        return Turn(text, n_tokens, cost["normal"], cost["lookahead"], cost["seconds"], cost["finish"])

    def _body(self, messages: list[SentMessage], options: Options, watch: bool, given: Iterable[str]) -> Json:
        """Return a request that says of the options what the user has given."""
        names = [name for name in given if name in fields_of(Options) and name != "stop_at_end"]
        values = {name: getattr(options, name) for name in names}
        usual = Options()
        if "decoder" in given or options.decoder != usual.decoder:  # its fields may have been given alone
            values["decoder"] = (
                options.decoder if isinstance(options.decoder, str) else options.decoder.describe()
            )
        if "cache" in given or options.cache != usual.cache:
            values["cache"] = options.policy.describe()
        body: Json = {
            "model": self.name, "messages": messages, "stream": True,
            "stream_options": {"include_usage": True}, "ignore_eos": not options.stop_at_end,
            "ripple": {"stream": "canvas"} if watch else {},
        }  # fmt: skip
        for name, value in values.items():
            (body if name in _TOP_LEVEL else body["ripple"])[name] = value
        return body

    def _first_model(self) -> str:
        with closing(self._connection()) as connection:
            listed = _parsed(self._request(connection, "GET", "/models").read(1 << 20), self.url)
        try:
            return str(listed["data"][0]["id"])
        except (LookupError, TypeError):
            raise RippleError(f"{self.url} does not say which models it has.") from None

    def _stream(self, body: Json) -> Iterator[Json]:
        """Yield the chunks of a streamed answer."""
        with closing(self._connection()) as connection:
            for line in self._lines(self._request(connection, "POST", "/chat/completions", body)):
                if not line.startswith(b"data: ") or line == b"data: [DONE]":
                    continue
                chunk = _parsed(line.removeprefix(b"data: "), self.url)
                if "error" in chunk:
                    raise RippleError(_message(chunk))
                yield chunk

    def _lines(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        try:
            while line := response.readline():
                yield line.rstrip()
        except (OSError, http.client.HTTPException) as error:
            raise RippleError(f"The connection to {self.url} broke: {error}.") from None

    def _connection(self) -> http.client.HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)

    def _request(
        self, connection: http.client.HTTPConnection, method: str, route: str, body: Json | None = None
    ) -> http.client.HTTPResponse:
        """Send a request and return its response, or raise what the server has against it."""
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.request(
                method, self._path + route, data, headers | {"Content-Type": "application/json"}
            )
            response = connection.getresponse()
            if response.status == 200:
                return response
            said = response.read(1 << 20)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise RippleError(f"Cannot reach {self.url}: {reason}.") from None
        try:
            told = _message(json.loads(said))
        except (ValueError, LookupError, TypeError, RecursionError):
            told = f"{self.url} answers {response.status} {response.reason}, not as a model's server does."
        raise RippleError(told)


def _parts(url: str) -> Any:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise RippleError(f"--url must look like http://127.0.0.1:8000, got {url!r}.")
    return parts


def _parsed(data: bytes, url: str) -> Json:
    try:
        chunk = json.loads(data)
    except (ValueError, RecursionError):
        chunk = None
    if not isinstance(chunk, dict):
        raise RippleError(f"{url} sends something that is no answer.")
    return chunk


def _message(body: Json) -> str:
    return str(body["error"]["message"])


def _event(told: Json) -> Event:
    data = dict(told)
    return Event(data.pop("event"), data.pop("t"), data)
