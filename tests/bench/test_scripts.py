"""Scripts ask for what they were told, on canvases of both kinds; a recorded decoding is repeated exactly."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from ripple.bench.scripts import Hold, Played, Scripted
from ripple.engine.engine import Engine
from ripple.models.shapes import random_network, shape_named
from ripple.options import Options
from ripple.schedule import as_lists, forwards_of, from_lists

SMALL: dict[str, Any] = {
    "d_model": 32, "n_layers": 2, "n_heads": 2, "n_kv_heads": 1, "head_dim": 16, "d_ff": 32,
    "vocab_size": 100, "mask_id": 99, "end_ids": (98,),
}  # fmt: skip
PROMPT = list(range(1, 12))


def engine_of(shape: str) -> Engine:
    config = dataclasses.replace(shape_named(shape), **SMALL)
    if config.attention_block is not None:
        config = dataclasses.replace(config, attention_block=8)
    return Engine(random_network(config, torch.device("cpu"), torch.float32))


def asked(engine: Engine, options: Options) -> list[tuple[Any, ...]]:
    """Everything that decides what each forward of a decoding costs."""
    seen: list[tuple[Any, ...]] = []
    run = engine.runner.run

    def watched(work: Any) -> Any:
        for one in work:
            row = one.layout.base.row
            copies = [some.ids.shape for some in row.branches]
            seen.append((one.ask.window, row.pos.tolist(), copies, row.slot, row.store_slot, row.n_keys))
        return run(work)

    engine.runner.run = watched  # type: ignore[method-assign]
    engine.generate(PROMPT, options)
    del engine.runner.run
    return seen


@pytest.mark.parametrize(
    ("shape", "cache"),
    [
        ("llada-8b", "none"), ("llada-8b", "dual"), ("llada-8b", "dual:keep_prompt=true"),
        ("llada-8b", "slide"), ("dream-7b", "slide"), ("dream-7b", "dual"), ("sdar-8b-b32", "exact"),
        ("nemotron-8b", "exact"), ("nemotron-8b", "none"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "decoder", ["confidence", "rps", "glide:width=9", "lopa", "wino:tau1=0.05,tau2=0.02"]
)
def test_a_recorded_decoding_is_repeated_row_by_row(shape: str, cache: str, decoder: str) -> None:
    engine = engine_of(shape)
    options = Options(decoder, 32, 8, cache, end_fill=True)
    first = asked(engine, options)
    traced = engine.generate(PROMPT, dataclasses.replace(options, trace=True))
    forwards = forwards_of(traced.trace or [], "here")
    assert from_lists(as_lists(forwards)) == forwards
    script = Played(forwards, end=98, tokens=98)
    again = asked(engine, dataclasses.replace(options, decoder=script, end_fill=None))
    if decoder.startswith("wino"):  # its shadow is played as a branch, which may be a row wider
        first, again = ([(*one[:2], len(one[2]), *one[3:]) for one in some] for some in (first, again))
    assert again == first


@pytest.mark.parametrize("shape", ["sdar-8b-b32", "nemotron-8b"])
def test_a_script_fills_a_canvas_that_grows(shape: str) -> None:
    engine, schedule = engine_of(shape), ((0, 2), (0, 3, 0))
    prompt = PROMPT[:8]  # whole blocks, where these count
    result = engine.generate(prompt, decoder=Scripted(schedule, tokens=50), length=16, block=8, cache="exact")
    predicted = 2 if shape == "nemotron-8b" else 0  # first tokens of blocks
    assert (result.nfe_normal, result.nfe_lookahead) == (3 + predicted, 2) and result.finish == "length"


def test_a_held_block_of_a_canvas_that_grows_is_half_filled() -> None:
    engine = engine_of("sdar-8b-b32")
    decoder = Hold(branches=2, block_number=1, tokens=50)
    request = engine.submit(PROMPT[:8], decoder=decoder, length=24, block=8, cache="exact")
    for _ in range(5):
        engine.tick()
    assert request.canvas.n_masked == 4 and len(request.canvas.ids) == 24 and request.nfe_lookahead == 3
    request.cancel()
