"""Requests come, go, stop, stream and fail without touching each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ripple
from ripple.decoders import DECODERS
from ripple.models.random_checkpoint import write_random_checkpoint
from tests.conftest import with_filter


@pytest.fixture(scope="module", params=["llada", "dream"])
def talker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ripple.Engine:
    """An engine whose checkpoint has a tokenizer."""
    folder = tmp_path_factory.mktemp(request.param)
    write_random_checkpoint(folder, request.param, seed=2, vocab_size=340, d_model=32, n_heads=2, d_ff=64)
    return ripple.load(with_filter(folder), device="cpu", dtype="float32", queue_limit=8)


@pytest.mark.parametrize("name", DECODERS)
def test_the_streamed_text_joins_to_the_generated_text(talker: ripple.Engine, name: str) -> None:
    how = {"decoder": name, "length": 40, "block": 8, "cache": "prefix"}
    whole = talker.generate("How many?", **how)
    events = list(talker.stream("How many?", **how))
    assert "".join(e.data["text"] for e in events if e.kind == "text") == whole.text
    assert events[0].kind == "start" and events[-1].kind == "end"
    assert events[-1].data["nfe_normal"] + events[-1].data["nfe_lookahead"] == whole.nfe
    committed: dict[int, int] = {}
    for event in events:
        if event.kind == "commit":
            committed.update(zip(event.data["pos"], event.data["token"], strict=True))
    assert [committed[p] for p in sorted(committed)] == whole.token_ids


def test_text_arrives_before_the_end(talker: ripple.Engine) -> None:
    kinds = [e.kind for e in talker.stream("How many?", decoder="default", length=64, block=8)]
    assert kinds.index("text") < len(kinds) - 20


def test_a_stream_that_is_dropped_leaves_nothing_behind(talker: ripple.Engine) -> None:
    stream = talker.stream("How many?", decoder="default", length=40, block=8, cache="dual")
    next(stream)
    stream.close()
    assert talker.n_live == talker.n_waiting == 0


def test_prompts_may_be_text_ids_or_messages(talker: ripple.Engine) -> None:
    ids = talker.tokenizer.encode("Hello")
    how = {"decoder": "confidence", "length": 16, "block": 8}
    assert talker.generate("Hello", **how).token_ids == talker.generate(ids, **how).token_ids
    messages = [{"role": "user", "content": "Hello"}]
    chat = talker.generate(messages, **how)
    assert chat.prompt_tokens == len(talker.tokenizer.encode_chat(messages)) > len(ids)
    several = talker.generate(["Hello", ids, messages], **how)
    assert [r.prompt_tokens for r in several] == [len(ids), len(ids), chat.prompt_tokens]


def test_generation_can_stop_at_the_first_end_token(
    talker: ripple.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = {"decoder": "confidence", "length": 48, "block": 8}
    full = talker.generate("Hello", **how)
    end = full.token_ids[10]
    config = talker.model.config
    import dataclasses

    monkeypatch.setattr(talker.model, "config", dataclasses.replace(config, end_ids=(end,)))
    stopped = talker.generate("Hello", **how, stop_at_end=True)
    unstopped = talker.generate("Hello", **how)
    assert unstopped.finish == "end" and unstopped.is_full and unstopped.token_ids == full.token_ids
    assert stopped.finish == "end" and not stopped.is_full and stopped.nfe < unstopped.nfe
    assert stopped.new_tokens == unstopped.new_tokens and stopped.new_tokens[-1] == end
    assert config.mask_id in stopped.token_ids


def test_generation_can_stop_at_a_string(talker: ripple.Engine) -> None:
    how = {"decoder": "confidence", "length": 48, "block": 8}
    full = talker.generate("Hello", **how)
    stop = full.text[6:8]
    stopped = talker.generate("Hello", **how, stop=[stop])
    assert stopped.finish == "stop" and stopped.nfe < full.nfe
    assert stopped.text == full.text[: full.text.index(stop)]
    streamed = [e.data["text"] for e in talker.stream("Hello", **how, stop=[stop]) if e.kind == "text"]
    assert "".join(streamed) == stopped.text


def test_a_cancelled_request_leaves_between_ticks(talker: ripple.Engine) -> None:
    settings = ripple.Options(ripple.Default(), 32, 8, ripple.DualCache())
    stays, goes = talker.submit([5, 6], settings), talker.submit([7, 8], settings)
    talker.tick()
    goes.cancel()
    talker.tick()
    assert talker.n_live == 1
    while stays.finish is None:
        talker.tick()
    assert goes.result().finish == "cancelled" and goes.result().nfe == 1
    assert (
        stays.result().token_ids
        == talker.generate([5, 6], decoder="default", length=32, block=8, cache="dual").token_ids
    )


def test_the_queue_has_a_limit(talker: ripple.Engine) -> None:
    settings = ripple.Options(ripple.Default(), 8, 8)
    waiting = [talker.submit([5], settings) for _ in range(8)]
    with pytest.raises(ripple.QueueFull, match="8 requests are waiting"):
        talker.submit([5], settings)
    for request in waiting:
        request.cancel()
    talker.tick()
    assert talker.n_waiting == 0


def test_requests_that_are_queued_can_be_drained_once_more_or_after_their_end(talker: ripple.Engine) -> None:
    request = talker.submit([5], length=8)
    assert list(talker.drain([request])) == [request] == list(talker.drain([request]))


@pytest.mark.parametrize(
    "wants", [None, 3, ripple.Wants(top=0), ripple.Wants(top=999), ripple.Wants(top=1.5)]
)  # type: ignore[arg-type]
def test_a_decoder_says_properly_what_it_wants(engines: dict[str, ripple.Engine], wants: Any) -> None:
    decoder = type("Odd", (ripple.Confidence,), {"wants": wants})()
    with pytest.raises(ripple.RippleError, match=r"A decoder('s wants must be Wants| may want 1 to 255)"):
        engines["llada"].submit([1], decoder=decoder, length=8)
    assert engines["llada"].n_waiting == 0


@pytest.mark.parametrize("fused", ["no", None, 1])
def test_fused_is_a_flag(folders: dict[str, Path], fused: Any) -> None:
    with pytest.raises(ripple.RippleError, match="fused must be true or false"):
        ripple.load(folders["llada"], device="cpu", fused=fused)


def test_a_request_that_is_queued_in_another_engine_is_refused(
    talker: ripple.Engine, engine: ripple.Engine
) -> None:
    request = engine.submit([5], length=8)
    with pytest.raises(ripple.RippleError, match=f"Request {request.number} is queued in another engine"):
        list(talker.drain([request]))
    engine.tick()
    assert engine.n_live == engine.n_waiting == 0


def test_more_prompts_than_the_queue_holds_are_fed_in(talker: ripple.Engine) -> None:
    results = talker.generate([[5, i] for i in range(30)], decoder="confidence", length=8, block=8)
    assert len(results) == 30


def test_the_same_seed_gives_the_same_sample(engine: ripple.Engine) -> None:
    how = {"decoder": "confidence", "length": 24, "block": 8, "temperature": 1.0}
    one, again, other = (engine.generate([1, 2, 3], seed=s, **how).token_ids for s in (1, 1, 2))
    assert one == again != other


@pytest.mark.parametrize("name", DECODERS)
def test_nan_logits_end_the_request_with_one_sentence(
    folders: dict[str, Path], family: str, name: str
) -> None:
    broken = ripple.load(folders[family], device="cpu", dtype="float32")
    broken.model.weights.norm[3] = float("nan")
    with pytest.raises(ripple.RippleError, match=r"Request \d+, decoder .*, forward 1: .*not finite"):
        broken.generate([1, 2], decoder=name, length=8, block=4)
    assert broken.n_live == 0


def test_a_broken_request_does_not_take_its_neighbours_down(engine: ripple.Engine) -> None:
    settings = ripple.Options(ripple.Confidence(), 16, 8)
    good, bad = engine.submit([1, 2], settings), engine.submit([3, 4], settings)
    engine.tick()
    bad.fail("test")
    while good.finish is None:
        engine.tick()
    expected = engine.generate([1, 2], decoder="confidence", length=16, block=8)
    assert good.result().token_ids == expected.token_ids
    with pytest.raises(ripple.RippleError, match="test"):
        bad.result()


class Stuck(ripple.Confidence):
    """A decoder that never commits."""

    def decode(self, canvas: ripple.Canvas) -> ripple.decoders.base.Conversation:
        while True:
            yield ripple.Ask(next(canvas.windows()))


def test_a_decoder_without_progress_is_stopped(engine: ripple.Engine) -> None:
    with pytest.raises(ripple.RippleError, match="has not filled 4 positions in 81 forwards"):
        engine.generate([1], decoder=Stuck(), length=4, block=4)


BAD = [
    ([], {}, "prompt"),
    ("", {}, "prompt|tokenizer"),
    ([1, 64], {}, "Token id 64 is outside the vocabulary of 64"),
    ([-1], {}, "Token id -1 is outside"),
    ([1.5], {}, "whole numbers"),
    ([1, True], {}, "whole numbers"),
    ("text", {}, "no tokenizer"),
    (7, {}, "A prompt is"),
    ([1], {"length": 0}, "length must be a whole number of at least 1 or none, got 0"),
    ([1], {"length": -5}, "length must be"),
    ([1], {"block": 0}, "block must be"),
    ([1], {"length": 8, "block": 9}, "block must not exceed length 8, got 9"),
    ([1], {"length": 5000}, "exceed the model's 1024 positions"),
    ([1], {"cache": "duall"}, "Did you mean 'dual'"),
    ([1], {"lookahead": "pack"}, "did you mean 'packed'"),
    ([1], {"decoder": "confidense"}, "Did you mean 'confidence'"),
    ([1], {"temperature": -1.0}, "temperature"),
    ([1], {"temperature": float("nan")}, "temperature"),
    ([1], {"seed": -1}, "seed"),
    ([1], {"cache": None}, "cache must be a name such as 'dual' or a cache object, got None"),
    ([1], {"temperature": "x"}, "temperature must be a number of at least 0, got 'x'"),
    ([1], {"temperature": float("inf")}, "temperature must be a finite number"),
    ([1], {"stop": None}, "stop must be a list"),
    ([1], {"stop": [3]}, "stop must be a list"),
    ([1], {"stop_at_end": "no"}, "stop_at_end must be true or false, got 'no'"),
    ([1], {"trace": "x.jsonl"}, "trace must be true or false"),
    ([1], {"decoder": ripple.RPS}, r"write RPS\(\)"),
    ([1], {"decoder": 3}, "decoder must be a name"),
    ([1], {"lenght": 3}, "Did you mean 'length'"),
    (np.zeros((2, 2, 2), dtype=int), {}, "one dimension"),
    (np.array([1.5]), {}, "whole numbers"),
    ([1], {"stop": [""]}, "stop"),
]


@pytest.mark.parametrize("prompt, options, sentence", BAD)
def test_bad_input_gets_one_clear_sentence(
    engine: ripple.Engine, prompt: object, options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ripple.RippleError, match=sentence) as error:
        engine.generate(prompt, **{"length": 16, "block": 8, **options})
    assert "\n" not in str(error.value) and str(error.value).endswith(".")
    assert engine.n_live == engine.n_waiting == 0


def test_a_prompt_with_mask_tokens_is_refused(engine: ripple.Engine) -> None:
    with pytest.raises(ripple.RippleError, match="mask token"):
        engine.generate([1, engine.model.config.mask_id], length=8, block=8)


def test_arrays_and_tensors_are_prompts(engine: ripple.Engine) -> None:
    how = {"decoder": "confidence", "length": 8, "block": 8}
    plain = engine.generate([1, 2], **how).token_ids
    for prompt in (list(np.array([1, 2])), np.array([1, 2]), torch.tensor([1, 2]), (1, 2)):
        assert engine.generate(prompt, **how).token_ids == plain
    for prompts in (np.array([[1, 2], [3, 4]]), torch.tensor([[1, 2], [3, 4]]), [np.array([1, 2]), [3, 4]]):
        many = engine.generate(prompts, **how)
        assert [len(many), many[0].token_ids] == [2, plain]
