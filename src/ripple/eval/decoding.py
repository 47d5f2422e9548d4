"""Decodes many prompts in continuous batches and hands each result out, with its costs, as its request ends.

The runner and the harness's model both decode here, so that they cannot disagree about a response.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from ripple.decoders import Default
from ripple.engine.engine import Engine
from ripple.engine.prompts import Prompt
from ripple.engine.result import Result
from ripple.errors import RippleError, WorkFailed
from ripple.files import Line
from ripple.options import Options
from ripple.tasks.published.accounting import count_fast_dllm

BATCH = {"cpu": 8, "cuda": 64}  # requests per tick by device; a kill costs at most these


class NamedPrompt(NamedTuple):
    """One prompt to decode; `name` stands in every complaint about it."""

    name: str
    prompt: Prompt
    options: Options


def decode(engine: Engine, prompts: Sequence[NamedPrompt]) -> Iterator[tuple[int, Result]]:
    """Yield the number and the result of each prompt as it ends; raise at the end what failed.

    Every prompt is checked before the first is decoded. A request that fails harms no other.
    """
    requests = []
    for name, prompt, options in prompts:
        try:
            requests.append(engine.prepare(prompt, options))
        except RippleError as error:
            raise RippleError(f"{name}: {error}") from None
    numbers = {request.number: i for i, request in enumerate(requests)}
    failures: list[str] = []
    with closing(engine.drain(requests)) as ended:
        for request in ended:
            i = numbers[request.number]
            if request.error is not None:
                failures.append(f"{prompts[i].name}: {request.error}")
            else:
                yield i, request.result()
    raise_failures(failures)


def raise_failures(failures: Sequence[str]) -> None:
    """Raise what failed, if anything did, after everything else has been decoded."""
    if failures:
        more = f" ({len(failures) - 1} more failed too)" if len(failures) > 1 else ""
        raise WorkFailed(f"{failures[0].rstrip('.')}{more}; all others were decoded.")


def one_forward(engine: Engine, length: int) -> Options:
    """Return options that commit all that is open at once, to warm up before the first decoder is timed."""
    return Options(Default(k=length), length, one_block(engine, length))


def one_block(engine: Engine, length: int) -> int | None:
    """Return the block that makes a canvas one block, where the model has no blocks of its own."""
    return length if engine.model.config.attention_block is None else None


def default_batch(engine: Engine) -> int:
    """Return how many requests to decode together on the engine's device, when nobody said."""
    return BATCH.get(engine.model.device.type, BATCH["cpu"])


def response(engine: Engine, result: Result, stops: Sequence[str]) -> Line:
    """Return what an item line says of a response, but for its verdict."""
    return {"text": result.text, "finish": result.finish, **costs(engine, result, stops)}


def costs(engine: Engine, result: Result, stops: Sequence[str]) -> Line:
    """Return what one response cost; tokens by our count and by Fast-dLLM's."""
    return {
        "nfe": result.nfe, "nfe_normal": result.nfe_normal, "nfe_lookahead": result.nfe_lookahead,
        "canvases": result.canvases, "prompt_tokens": result.prompt_tokens,
        "new_tokens": len(result.new_tokens), "tokens_fast_dllm": _tokens_fast_dllm(engine, result, stops),
        "seconds": round(result.seconds, 6), "engine_seconds": round(result.engine_seconds, 6),
    }  # fmt: skip


def _tokens_fast_dllm(engine: Engine, result: Result, stops: Sequence[str]) -> int | None:
    """Count the response as Fast-dLLM does; None without a tokenizer, which its count needs.

    Its script cuts and counts text for LLaDA, and the generated ids for Dream, whose predictions are
    shifted, and where nothing is cut.
    """
    tokenizer, config = engine.tokenizer, engine.model.config
    if tokenizer is None:
        return None
    ids = [token for token in result.token_ids if token != config.mask_id]  # an early stop leaves masks
    cuts = bool(stops) and not config.logit_shift
    return count_fast_dllm(
        ids,
        config.end_ids[0],
        stops,
        lambda tokens: tokenizer.decode(tokens, skip_special=False),
        tokenizer.encode,
        cuts,
    )
