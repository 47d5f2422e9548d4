"""A stream of prompts through one engine: each outcome is handed out when its request ends.

The engine runs in its own thread, so that whoever writes the outcomes down keeps no forward waiting, and
several streams may share it.
"""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ripple.decoders import Default
from ripple.engine.engine import Engine
from ripple.engine.result import Result
from ripple.engine.thread import Ticket
from ripple.errors import RequestError, RippleError, WorkFailed
from ripple.options import Options


class NumberedPrompt(NamedTuple):
    """One prompt to decode; `error` says why it cannot be, where that is known already."""

    number: int
    prompt: Any
    options: Options | None
    error: RippleError | None = None


RowOutcome = Result | RippleError


def decode(engine: Engine, prompts: Iterable[NumberedPrompt]) -> Iterator[tuple[int, RowOutcome]]:
    """Yield each prompt's number and its result, or the error that ends it alone, as it ends.

    Prompts are taken as the engine has room. A request that fails is decoded once more, since the fault may
    have been its company's; when then nothing can be decoded at all, that is raised.
    """
    ended: queue.SimpleQueue[tuple[NumberedPrompt, Ticket]] = queue.SimpleQueue()
    feed, running, failed_once = iter(prompts), dict[int, Ticket](), set[int]()

    def start(prompt: NumberedPrompt) -> RippleError | None:
        if prompt.error is not None:
            return prompt.error
        try:
            request = engine.prepare(prompt.prompt, prompt.options)
        except RippleError as error:
            return error
        except Exception as error:  # of a decoder or a cache of somebody else's
            return RippleError(f"{type(error).__name__}: {error}")
        ticket = running[prompt.number] = engine.thread.put(request)
        ticket.on_end(lambda: ended.put((prompt, ticket)))
        return None

    try:
        while True:
            while len(running) < 2 * engine.max_batch and (prompt := next(feed, None)) is not None:
                if (error := start(prompt)) is not None:
                    yield prompt.number, error
            if not running:
                return
            prompt, ticket = ended.get()
            del running[prompt.number]
            try:
                outcome: RowOutcome = ticket.result()
            except RequestError as error:
                if prompt.number not in failed_once:
                    failed_once.add(prompt.number)
                    if start(prompt) is None:
                        continue
                _check_alive(engine)
                outcome = error
            yield prompt.number, outcome
    finally:
        for ticket in running.values():
            ticket.cancel()


def _check_alive(engine: Engine) -> None:
    """Raise when not even one token can be decoded: then no request is at fault."""
    token = next(i for i in range(2) if i != engine.model.config.mask_id)
    try:
        engine.generate([token], Options(Default(), 1, 1))
    except RequestError as error:
        raise WorkFailed(f"Nothing can be decoded any more: {error}") from error
