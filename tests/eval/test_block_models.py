"""Evaluation, the harness and `bench decoders` with a model that attends block by block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ripple
from ripple.cli import main
from ripple.errors import RippleError
from ripple.eval.decoders import Decoders
from ripple.eval.lines import read_results
from ripple.eval.results import read_run
from ripple.eval.runner import Evaluation, evaluate
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.tasks import TASKS

SIZES: dict[str, Any] = {
    "seed": 1, "vocab_size": 320, "d_model": 32, "n_heads": 2, "d_ff": 32, "block_size": 8,
    "max_positions": 512,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_checkpoint(tmp_path_factory.mktemp("blocks") / "small-sdar", "sdar", **SIZES)


def test_the_runner_decodes_as_the_engine_does_and_states_the_models_block(
    folder: Path, tmp_path: Path
) -> None:
    engine = ripple.load(folder, device="cpu")
    options = ripple.Options("rps", length=24, cache="exact")
    evaluate(Evaluation(engine, TASKS["words"], options, "small-sdar"), tmp_path / "run.jsonl", limit=3)
    run = read_run(str(tmp_path / "run.jsonl"))
    assert (run.facts["block"], run.facts["cache"], len(run.items)) == (8, "exact", 3)
    items = {item.id: item for item in TASKS["words"].test_items(3)}
    for line in run.items:
        result = engine.generate(items[line["item"]].prompt, options)
        assert (line["text"], line["nfe"]) == (result.text, result.nfe)


def test_every_decoder_and_cache_of_such_models_gets_a_line(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "decoders.jsonl"
    how: dict[str, Any] = {"device": "cpu", "tasks": "words", "items": 2, "length": 24}
    Decoders(out=out, models=str(folder), caches="none,exact", **how).run()
    by_cache = {name: [x for x in read_results(out) if x["cache"] == name] for name in ("none", "exact")}
    plain, stored = ({x["setting"]: x["nfe_items"] for x in lines} for lines in by_cache.values())
    assert plain == stored and len(plain) == 11
    assert {"default", "confidence:tau=0.85", "rps", "glide"} <= plain.keys()  # the vendor's threshold


def test_decoders_are_compared_in_other_blocks_as_of_another_model(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "decoders.jsonl"
    how: dict[str, Any] = {"device": "cpu", "tasks": "words", "items": 2, "length": 24, "decoders": "default"}
    Decoders(out=out, models=str(folder), **how).run()
    with pytest.warns(UserWarning, match="was trained with blocks of 8, not of 4"):
        assert Decoders(out=out, models=str(folder), block_size=4, **how).run()["new_lines"] == 1
    blocks = {line["model"]: line["block"] for line in read_results(out)}
    assert blocks == {"small-sdar": 8, "small-sdar in blocks of 4": 4}
    with pytest.raises(RippleError, match="attend block by block, which tiny-llada does not"):
        Decoders(out=out, models="tiny-llada", block_size=4, **how).run()


def test_on_a_gpu_a_model_is_measured_under_the_caches_that_it_has() -> None:
    from ripple.eval.facts import choose_model

    caches = {
        name: Decoders()._caches(choose_model(name), on_gpu=True)
        for name in ("tiny-llada", "JetLM/SDAR-8B-Chat-b32")
    }
    assert list(caches.values()) == [["none", "prefix", "dual"], ["none", "exact"]]


def test_the_paper_is_about_other_models(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "--model", str(folder), "--plan"]) != 0
    assert "small-sdar attends block by block" in capsys.readouterr().err


def test_the_harness_generates_and_scores(folder: Path) -> None:
    pytest.importorskip("lm_eval", reason="the extra `lm-eval` is not installed")
    from lm_eval.api.instance import Instance

    from ripple.eval.harness import RippleLM

    how = {"decoder": "rps", "length": 24, "cache": "exact"}
    lm = RippleLM(str(folder), device="cpu", mc_num=4, **how)
    context = "1 + 1 ="
    asked = [Instance("generate_until", {}, (context, {"until": []}), 0)]
    assert lm.generate_until(asked) == [lm.engine.generate(context, **how).text]
    pairs = [Instance("loglikelihood", {}, (context, end), i) for i, end in enumerate((" 2", " two"))]
    assert all(score < 0 for score, _ in lm.loglikelihood(pairs))
    with pytest.raises(RippleError, match="has no meaning for sdar"):
        RippleLM(str(folder), device="cpu", cache="dual").generate_until(asked)


def test_the_harness_scores_a_causal_context(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval", reason="the extra `lm-eval` is not installed")
    from lm_eval.api.instance import Instance

    from ripple.eval.harness import RippleLM

    lm = RippleLM(str(write_random_checkpoint(tmp_path, "nemotron", **SIZES)), device="cpu", length=16)
    pairs = [Instance("loglikelihood", {}, ("1 + 1 =", end), i) for i, end in enumerate((" 2", " two"))]
    told = lm.loglikelihood(pairs)
    assert all(score < 0 for score, _ in told)
    text = [Instance("loglikelihood_rolling", {}, ("1 + 1 = 2",), 0)]
    assert lm.loglikelihood_rolling(text)[0] < told[0][0]


def test_the_harness_is_told_a_block_size_as_every_command_is(folder: Path) -> None:
    pytest.importorskip("lm_eval", reason="the extra `lm-eval` is not installed")
    from ripple.eval.harness import RippleLM

    with pytest.warns(UserWarning, match="was trained with blocks of 8, not of 4"):
        lm = RippleLM.create_from_arg_string(f"pretrained={folder},block_size=4,length=8", {"device": "cpu"})
    assert lm.engine.model.config.attention_block == 4
    with pytest.raises(RippleError, match="block_size must be a whole number of 1 to 1024, got 'x'"):
        RippleLM(str(folder), device="cpu", block_size="x")
