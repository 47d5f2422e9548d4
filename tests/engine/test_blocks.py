"""Models that attend block by block: growing canvases, exact keys, merged openings, exact lookahead."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ripple
from ripple.decoders import DECODERS
from ripple.engine.engine import Engine
from ripple.engine.layout import AskLayout
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.trace import contradiction
from tests.conftest import with_filter
from tests.reference import decoders as reference
from tests.reference.blocks import (
    block_causal_logits,
    block_causal_shadow,
    decode_by_blocks,
    decode_with_next_tokens,
)
from tests.reference.edit import reference_edit
from tests.reference.glide import reference_glide
from tests.reference.model import ReferenceModel

BLOCK = 8
PROMPTS = [np.random.default_rng(n).integers(0, 56, n).tolist() for n in (8, 3, 9, 15)]
"""Whole blocks, less than one, one more and one less than whole blocks."""
SMALL: dict[str, Any] = {
    "vocab_size": 64, "d_model": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "d_ff": 64,
}  # fmt: skip


@pytest.fixture(scope="module", params=["sdar", "nemotron", "llada2"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp(request.param)
    how = {"seed": 4, "sharpness": 4.0, "block_size": BLOCK, "max_positions": 512} | SMALL
    return with_filter(write_random_checkpoint(place, request.param, **how))


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return ripple.load(folder, device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def witness(folder: Path) -> ReferenceModel:
    return ReferenceModel(folder)


@pytest.fixture(scope="module")
def aligned(engine: Engine) -> Engine:
    """The engine of a family whose blocks are counted from position 0."""
    if engine.model.config.causal_context:
        pytest.skip("its blocks are counted from the prompt's end")
    return engine


@pytest.fixture(scope="module")
def causal(engine: Engine) -> Engine:
    """The engine of a family with a causal context."""
    if not engine.model.config.causal_context:
        pytest.skip("its context is not causal")
    return engine


def block_end(engine: Engine, prompt: list[int], n: int) -> int:
    """Where in the response the block ends that holds its n-th position."""
    origin = 0 if engine.model.config.causal_context else len(prompt)
    return n + BLOCK - (origin + n) % BLOCK


def ending_with(engine: Engine, *end_ids: int) -> Engine:
    """The same model, whose text ends with other tokens."""
    config = dataclasses.replace(engine.model.config, end_ids=end_ids)
    model: Any = engine.model
    return Engine(type(model)(config, model.weights), folder=engine.folder)


def outcome(result: ripple.Result) -> tuple[list[int], int, int, str]:
    return result.token_ids, result.nfe_normal, result.nfe_lookahead, result.finish


def looks(result: ripple.Result) -> list[tuple[list[int], np.ndarray, list[float]]]:
    """What every forward said: masked positions; token, probability and entropy; entropies in branches."""
    assert result.trace is not None
    forwards = [event.data for event in result.trace if event.kind == "forward"]
    return [
        (one["pos"], np.array([one["token"], one["p"], one["entropy"]]), in_branches(one)) for one in forwards
    ]


def in_branches(forward: dict[str, Any]) -> list[float]:
    return [h for branch in forward.get("branches", ()) for h in branch["entropy"]]


def assert_same(one: ripple.Result, other: ripple.Result) -> None:
    """The same tokens, forwards and, within rounding, numbers."""
    assert outcome(one) == outcome(other)
    for (pos, numbers, inner), (pos_too, numbers_too, inner_too) in zip(
        looks(one), looks(other), strict=True
    ):
        assert pos == pos_too
        np.testing.assert_allclose(numbers, numbers_too, atol=5e-5)  # entropies amplify rounding
        np.testing.assert_allclose(inner, inner_too, atol=1.1e-3)  # traces have three decimals of them


CASES: list[tuple[str, dict[str, Any]]] = [
    ("default", {"k": 1}),
    ("default", {"k": 3}),
    ("confidence", {"tau": 0.9}),
    ("confidence", {"tau": 0.5}),
    ("factor", {"f": 1.0}),
    ("frechet", {"delta": 0.25}),
    ("klass", {"tau": 0.5, "eps_kl": 0.2, "history": 2}),
    ("eb", {"gamma": 0.5}),
    ("wino", {"tau1": 0.3, "tau2": 0.6}),
    ("lopa", {"tau": 0.9, "k": 3}),
    ("ete", {"f": 1.0, "target": 0.5, "k": 3, "span": 1}),
    ("rps", {"tau": 0.9, "tau_pivot": 0.9, "k_max": 10, "r": 0.1, "lam": 0.1}),
    ("rps", {"tau": 0.7, "tau_pivot": 0.7, "k_max": 6, "r": 0.05, "lam": 0.3}),
    ("glide", {"width": 5, "cap": 4.0, "tau": 0.9, "tau_far": 0.95, "tau_pivot": 0.8, "k_max": 10, "r": 0.1,
               "lam": 0.1}),
    ("edit", {"tau": 0.5, "tau_edit": 0.3}),
    ("edit", {"tau": 0.7, "tau_edit": 0.0, "post_steps": 4}),
    ("glide", {"width": 40, "cap": 4.0, "tau": 0.9, "tau_far": 0.95, "tau_pivot": 0.8, "k_max": 10, "r": 0.1,
               "lam": 0.1, "pivots": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields"), CASES)
def test_decoding_equals_one_full_forward_with_a_dense_mask_at_every_step(
    engine: Engine, witness: ReferenceModel, name: str, fields: dict[str, Any]
) -> None:
    own = {"glide": reference_glide, "edit": reference_edit}
    decode = own.get(name) or getattr(reference, f"reference_{name}")
    end_ids, mask_id = engine.model.config.end_ids, witness.mask_id
    how = {"decoder": ripple.decoder(name, **fields), "length": 21, "end_fill": False}
    results = [engine.generate(PROMPTS, cache=cache, **how) for cache in ("none", "exact")]
    for prompt, *both in zip(PROMPTS, *results, strict=True):
        if engine.model.config.causal_context:
            case = (decode, witness, name == "wino", prompt, 21, BLOCK, end_ids)
            tokens, nfe = decode_with_next_tokens(*case, **fields)
        else:
            look: tuple[Any, ...] = (block_causal_logits(witness, BLOCK),)
            look += (block_causal_shadow(witness, BLOCK),) if name == "wino" else ()
            tokens, nfe = decode_by_blocks(decode, look, prompt, 21, BLOCK, mask_id, end_ids, **fields)
        for result in both:
            assert (result.token_ids[: len(tokens)], result.nfe) == (tokens, nfe), prompt


@pytest.mark.parametrize("name", DECODERS)
def test_stored_blocks_and_packed_branches_are_exact(engine: Engine, name: str) -> None:
    """Whatever is stored or packed, tokens, forwards and numbers are those of neither."""
    how = {"decoder": name, "length": 20, "trace": True}
    plain = engine.generate(PROMPTS, lookahead="batched", **how)
    for cache, lookahead in (("none", "packed"), ("exact", "packed"), ("exact", "batched")):
        for one, other in zip(
            engine.generate(PROMPTS, cache=cache, lookahead=lookahead, **how), plain, strict=True
        ):
            assert_same(one, other)


@pytest.mark.parametrize("cache", ["none", "exact"])
def test_logits_of_packed_branches_are_those_of_full_rows(engine: Engine, cache: str) -> None:
    n_seen = 0
    for prompt in PROMPTS:
        request = engine.submit(prompt, decoder="lopa:k=3", length=20, cache=cache)
        while request.finish is None:
            engine.tick()
            if request.ask is not None and request.ask.branches:
                packed, exact = (
                    logits_of(engine, request.build_layout(how)) for how in ("packed", "batched")
                )
                for one, other in zip(packed, exact, strict=True):
                    torch.testing.assert_close(one, other, atol=5e-5, rtol=1e-5)
                n_seen += 1
    assert n_seen > 10


def logits_of(engine: Engine, layout: AskLayout) -> list[torch.Tensor]:
    logits = engine.model.logits(engine.runner.hidden_states([layout]))
    return [logits[span.rows] for span in layout.spans]


def test_the_forward_that_opens_a_block_stores_the_one_before_it(aligned: Engine) -> None:
    """No forward is spent on storing; a block's keys are those of a forward over all its final tokens."""
    prompt, one = PROMPTS[3], ending_with(aligned)
    request = one.submit(prompt, decoder="default", cache="exact", length=20)
    rows = []
    while request.finish is None:
        one.tick()
        if request.ask is not None:
            row = request.work().layout.base.row
            rows.append((row.pos[0], row.pos[-1] + 1, row.store_slot is not None))
    ids = request.result().token_ids
    starts = (16, 24, 32)  # of the blocks after the first, which one forward both opens and fills
    assert rows == [
        row
        for start in starts
        for row in ((start - 8, start + 8, True), *[(start, start + 8, False)] * (BLOCK - 1))
    ]
    assert request.result().nfe == 1 + 3 * BLOCK  # the prompt leaves one position of its last block

    whole = np.array([*prompt, *ids])
    exact = Engine(aligned.model)
    exact.generate(whole[:32].tolist(), decoder="default", cache="exact", length=1)
    mine, theirs = one.runner.store, exact.runner.store
    for stored, computed in ((mine.k, theirs.k), (mine.v, theirs.v)):
        torch.testing.assert_close(stored[:, 0, :, :32], computed[:, 0, :, :32], atol=1e-5, rtol=0)


def test_a_causal_context_is_stored_by_the_forward_that_predicts_the_next_token(causal: Engine) -> None:
    prompt, one = PROMPTS[1], ending_with(causal)
    request = one.submit(prompt, decoder="default", cache="exact", length=2 * BLOCK)
    rows = []
    one.tick()
    while request.finish is None:
        row = request.work().layout.base.row
        rows.append((row.pos[0], row.pos[-1] + 1, row.n_keys, row.store_slot is not None))
        one.tick()
    inside = [(3, 11, 11, False)] * (BLOCK - 1)
    assert rows == [*inside, (3, 11, 11, True), *[(11, 19, 19, False)] * (BLOCK - 1)]
    causes = request.result().causes
    assert [place for place, cause in enumerate(causes) if cause == "next_token"] == [0, BLOCK]
    assert request.result().nfe == 2 * BLOCK


def test_keys_of_a_blocks_last_look_are_not_its_final_keys(aligned: Engine) -> None:
    """They were computed while it held masks: a cache that kept them would decode something else."""
    ids, stores = [3, 5, 7, 9, 11, 13, 15, 17], []
    for prompt in (ids[:7], ids):  # the first one's block ends with a mask
        one = Engine(aligned.model)
        one.generate(prompt, decoder="default", cache="exact", length=1)
        stores.append(one.runner.store.k[1, 0, :, :7])
    assert (stores[0] - stores[1]).abs().max() > 0.01


@pytest.mark.parametrize("cache", ["none", "exact"])
def test_a_canvas_grows_until_a_block_holds_an_end_token(engine: Engine, cache: str) -> None:
    """A larger length changes nothing but what it allows."""
    engine = ending_with(engine)
    for prompt in PROMPTS:
        free = engine.generate(prompt, decoder="confidence", length=40, cache=cache)
        assert len(free.token_ids) == block_end(engine, prompt, 39) and len(free.new_tokens) == 40
        for place in (2, 8, 13, 23):  # within a block, the first and the last place of one, ...
            end = free.token_ids[place]
            first = free.token_ids.index(end)
            stop = block_end(engine, prompt, first)
            short = ending_with(engine, end).generate(
                prompt, decoder="confidence", length=400, cache=cache, trace=True
            )
            assert short.token_ids == free.token_ids[:stop] and len(short.causes) == len(short.token_ids)
            assert (short.new_tokens, short.finish) == (free.token_ids[: first + 1], "end")
            assert short.nfe < free.nfe or stop >= 40


@pytest.mark.parametrize("cache", ["none", "exact"])
def test_a_length_need_not_be_said(engine: Engine, cache: str) -> None:
    """The canvas grows to the last whole block that the model has positions for, or to an end token."""
    most = engine.model.config.max_positions
    for prompt in PROMPTS:
        whole = ending_with(engine).submit(prompt, decoder="confidence", cache=cache)
        assert len(prompt) + whole.length == most - (most - whole.canvas.max_len)
        assert (
            most - BLOCK < whole.canvas.max_len <= most and whole.canvas.max_len == len(prompt) + whole.length
        )
        said = ending_with(engine).generate(prompt, decoder="confidence", cache=cache, length=40)
        end = said.token_ids[17]
        short = ending_with(engine, end).generate(prompt, decoder="confidence", cache=cache)
        assert short.new_tokens == said.token_ids[: said.token_ids.index(end) + 1] and short.finish == "end"
        whole.cancel()


@pytest.mark.parametrize("length", [None, 400])
def test_a_result_is_as_long_as_its_canvas_has_grown(engine: Engine, length: int | None) -> None:
    free = ending_with(engine).generate(PROMPTS[0], decoder="confidence", length=40)
    ending = ending_with(engine, free.token_ids[17])
    result = ending.generate(PROMPTS[0], decoder="confidence", length=length, trace=True)
    assert len(result.causes) <= 24 and result.token_ids == free.token_ids[: len(result.causes)]
    assert result.is_full and "▒" not in result._repr_html_() and contradiction(result.trace or []) is None
    (cut := ending.submit(PROMPTS[0], length=length)).cancel()
    assert len(cut.result().token_ids) == BLOCK and not cut.result().is_full


def test_positions_are_counted_as_the_canvas_grows(engine: Engine) -> None:
    prompt = PROMPTS[0]
    request = engine.submit(prompt, decoder="rps", length=3 * BLOCK, trace=True)
    forwards = [x.data for x in next(engine.drain([request])).result().trace or [] if x.kind == "forward"]
    grown = [one["window"][1] - len(prompt) for one in forwards]  # the canvas ends with the open block
    assert grown[0] == BLOCK < grown[-1]
    assert request.positions == sum(n * one["canvases"] for n, one in zip(grown, forwards, strict=True))


def test_a_length_that_nobody_said_is_what_memory_holds(engine: Engine) -> None:
    position = (
        2 * engine.model.config.n_layers * engine.model.config.n_kv_heads * engine.model.config.head_dim * 4
    )
    small = Engine(ending_with(engine).model, memory_gb=300 * position / 1e9)
    result = small.generate(PROMPTS[0], decoder="confidence", cache="exact")
    assert 256 - BLOCK < len(PROMPTS[0]) + len(result.token_ids) <= 256 and result.finish == "length"
    with pytest.raises(ripple.RippleError, match=r"more than the .* of memory_gb"):
        small.submit(PROMPTS[0], cache="exact", length=300)
    most = engine.model.config.max_positions
    assert small.prepare(PROMPTS[0]).canvas.max_len > most - BLOCK, "without a cache nothing is kept"


def test_other_models_have_their_usual_length(engines: dict[str, ripple.Engine]) -> None:
    assert engines["llada"].prepare([1, 2]).length == 256


def test_the_last_block_is_whole_and_the_text_is_cut(engine: Engine) -> None:
    engine, whole = ending_with(engine), block_end(engine, PROMPTS[1], 5)
    result = engine.generate(PROMPTS[1], decoder="default", length=6, cache="exact")
    assert (len(result.token_ids), len(result.new_tokens), result.finish) == (whole, 6, "length")
    longer = engine.generate(PROMPTS[1], decoder="default", length=whole, cache="exact")
    assert longer.token_ids == result.token_ids == longer.new_tokens


def test_an_end_token_behind_the_cut_is_no_end(engine: Engine) -> None:
    n_seen = 0
    for prompt in PROMPTS:
        length = max(1, block_end(engine, prompt, 0) - 5)
        free = ending_with(engine).generate(prompt, decoder="default", length=length)
        for late in set(free.token_ids) - set(free.token_ids[:length]):
            result = ending_with(engine, late).generate(prompt, decoder="default", length=length)
            assert (result.new_tokens, result.finish) == (free.token_ids[:length], "length")
            n_seen += 1
    assert n_seen > 0


@pytest.mark.parametrize("cache", ["none", "exact"])
def test_requests_in_other_blocks_change_nothing(engine: Engine, cache: str) -> None:
    names = ("rps", "wino", "glide", "lopa", "klass", "default", "confidence", "ete")
    how = [(PROMPTS[i % 4], name, 9 + 4 * i, i % 2) for i, name in enumerate(names)]
    alone = [
        engine.generate(prompt, decoder=name, length=n, cache=cache, temperature=t, seed=n)
        for prompt, name, n, t in how
    ]
    together = [
        engine.submit(prompt, decoder=name, length=n, cache=cache, temperature=t, seed=n)
        for prompt, name, n, t in how
    ]
    list(engine.drain(together))
    assert [outcome(request.result()) for request in together] == [outcome(result) for result in alone]


@pytest.mark.parametrize("name", ["rps", "glide", "lopa"])
def test_thin_branches_and_a_lookahead_budget_work(engine: Engine, name: str) -> None:
    for prompt in PROMPTS:
        thin = engine.generate(prompt, decoder=name, length=20, cache="exact", lookahead="thin")
        again = engine.generate(prompt, decoder=name, length=20, lookahead="thin")
        assert outcome(thin) == outcome(again) and thin.finish in ("end", "length")
    limited = engine.generate(PROMPTS[0], decoder=name, length=16, cache="exact", lookahead_budget=0.0)
    assert limited.finish in ("end", "length") and limited.n_limited > 0


def test_stopping_at_the_end_and_filling_it_happen_inside_the_block(engine: Engine) -> None:
    prompt = PROMPTS[0]
    order = {"decoder": "default:order=left", "length": 16, "cache": "exact"}
    free = ending_with(engine).generate(prompt, **order)
    end = free.token_ids[3]
    ends = ending_with(engine, end)
    first = free.token_ids.index(end)
    stopped, filled = (ends.generate(prompt, **order, **{name: True}) for name in ("stop_at_end", "end_fill"))
    assert stopped.new_tokens == filled.new_tokens == free.token_ids[: first + 1]
    assert stopped.nfe == filled.nfe == first + 1
    stop = block_end(engine, prompt, first)
    assert filled.token_ids[first:stop] == [end] * (stop - first)


@pytest.mark.parametrize("family", ["sdar", "nemotron", "llada2"])
def test_streamed_text_is_the_results_text(tmp_path: Path, family: str) -> None:
    words = write_random_checkpoint(tmp_path, family, seed=1, **SMALL | {"vocab_size": 320})
    engine = ripple.load(words, device="cpu")
    events = list(engine.stream("the sum", decoder="rps", length=21, cache="exact"))
    end = events[-1].data
    assert "".join(event.data["text"] for event in events if event.kind == "text") == end["text"]
    assert end["text"] == engine.generate("the sum", decoder="rps", length=21).text


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"block": 4}, "attends in blocks of 8, so block must be 8 or left out, got 4"),
        ({"cache": "dual"}, "The cache 'dual' has no meaning for .*, whose finished blocks never change"),
        ({"cache": "d2:masks=4"}, "use 'exact' or 'none'"),
        ({"length": 510}, "Prompt of 3 tokens and length 510, in whole blocks of 8, exceed .* 512"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(
    engine: Engine, how: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ripple.RippleError, match=sentence):
        engine.generate(PROMPTS[1], **how)


def test_a_block_that_is_the_models_own_is_fine(engine: Engine) -> None:
    assert engine.generate(PROMPTS[0], length=8, block=8).is_full


def test_the_exact_cache_is_for_models_with_blocks(engines: dict[str, ripple.Engine]) -> None:
    with pytest.raises(ripple.RippleError, match="'exact' is for models that attend block by block"):
        engines["llada"].generate([1, 2], cache="exact", length=8)
