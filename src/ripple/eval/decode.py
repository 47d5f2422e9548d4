"""Decodes many prompts in continuous batches and hands each result out as soon as it is there.

The runner and the harness's model both decode here, so that they cannot disagree about a response.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ripple.benchmarks import cut
from ripple.benchmarks.accounting import count_fast_dllm
from ripple.decoders import Default
from ripple.engine.engine import Engine
from ripple.engine.prompts import Prompt
from ripple.engine.result import Result, Settings
from ripple.engine.session import Session
from ripple.errors import RippleError

BATCH = {"cpu": 8, "cuda": 64}  # requests per tick by device; a kill costs at most these


class Job(NamedTuple):
    """One prompt to decode; `name` stands in every complaint about it."""

    name: str
    prompt: Prompt
    settings: Settings


class Finished(NamedTuple):
    """One decoded job."""

    place: int  # among the jobs
    result: Result
    wall_seconds: float  # its share of the time the engine has worked since jobs finished last


def decoded(engine: Engine, jobs: Sequence[Job]) -> Iterator[list[Finished]]:
    """Yield what has finished after every tick, often nothing; a free place is filled before the next."""
    feed, live = deque(enumerate(jobs)), list[tuple[int, Session]]()
    spent = 0.0
    try:
        while feed or live:
            while feed and len(live) < engine.max_batch and engine.n_waiting < engine.queue_limit:
                index, job = feed.popleft()
                live.append((index, _submit(engine, job)))
            start = time.perf_counter()
            engine.tick()
            spent += time.perf_counter() - start
            ended = [(index, session) for index, session in live if session.finish is not None]
            live = [(index, session) for index, session in live if session.finish is None]
            yield [Finished(i, _result(jobs[i], session), spent / len(ended)) for i, session in ended]
            if ended:
                spent = 0.0
    finally:
        for _, session in live:
            session.cancel()


def warm_up(engine: Engine, job: Job) -> None:
    """Run one forward over a job's canvas, so that the first jobs do not pay for the device's start."""
    length = job.settings.length
    whole = Settings(Default(k=length), length=length, block=length)
    for _ in decoded(engine, [job._replace(settings=whole)]):
        pass


def default_batch(engine: Engine) -> int:
    """Return how many requests to decode together on the engine's device, when nobody said."""
    return BATCH.get(engine.model.device.type, BATCH["cpu"])


def response(result: Result, stops: Sequence[str]) -> str:
    """Return what is scored: the text cut at the stop strings as the harness's models do."""
    return cut(result.text, stops)


def tokens_fast_dllm(engine: Engine, result: Result, stops: Sequence[str]) -> int | None:
    """Count the response as Fast-dLLM does; None without a tokenizer, which its count needs.

    Its script cuts and counts text for LLaDA, and the generated ids for Dream and where nothing is cut.
    """
    text, config = engine.text, engine.model.config
    if text is None:
        return None
    ids = [token for token in result.token_ids if token != config.mask_id]  # an early stop leaves masks
    cuts = bool(stops) and config.family != "dream"
    return count_fast_dllm(
        ids,
        config.end_ids[0],
        stops,
        lambda tokens: text.decode(tokens, skip_special=False),
        text.encode,
        cuts,
    )


def _submit(engine: Engine, job: Job) -> Session:
    try:
        return engine.submit(job.prompt, job.settings)
    except RippleError as error:
        raise RippleError(f"{job.name}: {error}") from None


def _result(job: Job, session: Session) -> Result:
    try:
        return session.result()
    except RippleError as error:
        raise RippleError(f"{job.name}: {error}") from None
