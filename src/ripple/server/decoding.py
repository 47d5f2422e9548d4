"""From requests to answers: whole ones, and streams of chunks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence

from ripple.engine.request import Request
from ripple.engine.result import Result
from ripple.errors import EngineStopped
from ripple.server.failures import Refusal
from ripple.server.frames import FrameMaker
from ripple.server.logprobs import CommitLog, Scored, of_prompt
from ripple.server.replies import Json, Reply
from ripple.server.schema import ChatRequest, CompletionRequest, DecodeRequest
from ripple.server.service import Service
from ripple.server.streams import DONE, merged, sse
from ripple.server.tickets import AsyncTicket
from ripple.trace import Event


class Decoding:
    """The tickets of one body, on their way to an answer."""

    def __init__(self, service: Service, body: DecodeRequest, requests: Sequence[Request]) -> None:
        self.results: list[Result] = []  # of what has ended
        self.failed: int | None = None  # the status that a stream would have had
        self._service = service
        self._body = body
        self._n = body.n or 1
        self._reply = Reply(service.name, isinstance(body, ChatRequest))
        self._frames_wanted = bool(body.stream) and (body.ripple or {}).get("stream") == "canvas"
        tokenizer = service.engine.tokenizer
        self._logs = (
            [CommitLog(tokenizer, request.canvas.prompt_len) for request in requests]
            if body.wants_logprobs
            else None
        )
        self._echoes = body.echo is True if isinstance(body, CompletionRequest) else False
        events = "text" if body.stream else None
        self.tickets = service.submit(requests, "all" if self._frames_wanted or self._logs else events)

    def said(self) -> Json:
        """Return what the client sent, for a log that has prompts."""
        return self._body.model_dump(exclude_none=True)

    def close(self) -> None:
        """Cancel what has not ended."""
        self._service.cancel(self.tickets)

    # -- a whole answer -----------------------------------------------------------------------------

    async def whole(self) -> Json:
        """Decode to the end and return the answer."""
        try:
            async with asyncio.timeout(self._service.limits.timeout):
                await self._finish()
        except TimeoutError:
            raise self._too_slow() from None
        finally:
            self.close()
        self.results = [_result(ticket) for ticket in self.tickets]
        heads = [self._head(ticket) for ticket in self.tickets]
        scored = [self._scored(i) for i in range(len(self.tickets))]
        return self._reply.whole(self.results, self._n, heads, scored)

    async def _finish(self) -> None:
        if self._logs is None:
            for ticket in self.tickets:
                await ticket.finished()
            return
        for ticket, log in zip(self.tickets, self._logs, strict=True):
            async for batch in ticket.events():
                log.feed(batch)

    def _head(self, ticket: AsyncTicket) -> str:
        """Return what stands before the text of a choice."""
        tokenizer = self._service.engine.tokenizer
        if not self._echoes or tokenizer is None:
            return ""
        return tokenizer.decode(_prompt_ids(ticket), skip_special=False)

    def _scored(self, index: int) -> list[Scored] | None:
        """Return the log probabilities of a whole choice."""
        if self._logs is None:
            return None
        result = self.results[index]
        ours = self._logs[index].rest(len(result.new_tokens), len(result.text))
        return self._scored_prompt(self.tickets[index]) + ours

    def _scored_prompt(self, ticket: AsyncTicket) -> list[Scored]:
        return of_prompt(_prompt_ids(ticket), self._service.engine.tokenizer) if self._echoes else []

    # -- a stream -----------------------------------------------------------------------------------

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield the answer as server-sent events."""
        try:
            async with asyncio.timeout(self._service.limits.timeout):
                async for chunk in self._chunks():
                    yield sse(chunk)
        except Exception as error:
            told = self._service.refuse(self._too_slow() if isinstance(error, TimeoutError) else error)
            self.failed = told.status
            yield sse(told.body())
        finally:
            self.close()
        yield DONE

    async def _chunks(self) -> AsyncGenerator[Json, None]:
        reply, tickets = self._reply, self.tickets
        makers = [FrameMaker(i, self._service.engine.tokenizer) for i in range(len(tickets))]
        told = [0] * len(tickets)  # characters of the response
        for i, ticket in enumerate(tickets):
            if reply.is_chat:
                yield reply.role(i)
            elif self._echoes:
                prompt = self._scored_prompt(ticket) if self._logs is not None else None
                yield reply.text(i, self._head(ticket), prompt)
        ended: dict[int, Result] = {}
        async for i, batch in merged([ticket.events() for ticket in tickets]):
            if batch is None:
                ended[i] = result = _result(tickets[i])
                yield reply.end(i, result, *self._last_scored(i, result))
                continue
            if self._frames_wanted and (frame := makers[i].frame(batch)) is not None:
                yield reply.frame(frame)
            if self._logs is not None:
                self._logs[i].feed(batch)
            if text := _text(batch):
                told[i] += len(text)
                yield reply.text(i, text, *self._next_scored(i, told[i]))
        self.results = [ended[i] for i in range(len(tickets))]
        options = self._body.stream_options
        if options is not None and options.include_usage:
            yield reply.last(self.results, self._n)

    def _next_scored(self, index: int, n_chars: int) -> tuple[list[Scored] | None, int]:
        """Return the log probabilities of text up to a character, and where they begin."""
        if self._logs is None:
            return None, 0
        offset = len(self._head(self.tickets[index])) + self._logs[index].n_chars
        return self._logs[index].take(n_chars), offset

    def _last_scored(self, index: int, result: Result) -> tuple[list[Scored] | None, int]:
        if self._logs is None:
            return None, 0
        log = self._logs[index]
        offset = len(self._head(self.tickets[index])) + log.n_chars
        return log.rest(len(result.new_tokens), len(result.text)), offset

    def _too_slow(self) -> Refusal:
        return Refusal(504, f"The request took longer than {self._service.limits.timeout:g} s.")


def _text(events: Iterable[Event]) -> str:
    return "".join(event.data["text"] for event in events if event.kind == "text")


def _prompt_ids(ticket: AsyncTicket) -> list[int]:
    canvas = ticket.request.canvas
    ids: list[int] = canvas.ids[: canvas.prompt_len].tolist()
    return ids


def _result(ticket: AsyncTicket) -> Result:
    """Return a ticket's result; nobody but the server itself cancels one that a client waits for."""
    result: Result = ticket.result()
    if result.finish == "cancelled":
        raise EngineStopped("The engine has stopped.")
    return result
