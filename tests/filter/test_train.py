"""The filter's training: traces with the right labels, a fit that helps, files that come back unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

import ripple
import ripple.tasks
from ripple.decoders.learn2pd import TENSORS, read_filter
from ripple.filter.traces import FinalTokenOracle, Traces, collect
from ripple.filter.train import fit, save
from ripple.models.random_checkpoint import write_random_checkpoint
from tests.cli.conftest import Cli, checkpoint, cli  # noqa: F401  (fixtures)

LENGTH, BLOCK = 20, 8  # the last block is shorter


def prompts(n: int) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 40, size=int(rng.integers(3, 8))).tolist() for _ in range(n)]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Traces:
    """Traces of a random model that is sure of itself, so that its confidence says something."""
    folder = write_random_checkpoint(tmp_path_factory.mktemp("sharp"), vocab_size=64, sharpness=6.0)
    return collect(ripple.load(folder, device="cpu", dtype="float32"), prompts(150), LENGTH, BLOCK)


def test_the_oracle_ends_at_the_reference_and_labels_are_true(engine: ripple.Engine) -> None:
    for prompt in prompts(6):
        reference = engine.generate(prompt, decoder="default", length=LENGTH, block=BLOCK)
        oracle = FinalTokenOracle(np.array(reference.token_ids))
        result = engine.generate(prompt, decoder=oracle, length=LENGTH, block=BLOCK, trace=True)
        assert result.token_ids == reference.token_ids
        looks = [event.data for event in result.trace if event.kind == "forward"]
        assert len(looks) == len(oracle.seen) == result.nfe
        for look, (p, is_final, is_masked) in zip(looks, oracle.seen, strict=True):
            at = [pos - look["window"][0] for pos in look["pos"]]
            final = [reference.token_ids[pos - len(prompt)] for pos in look["pos"]]
            assert np.flatnonzero(is_masked).tolist() == at
            assert is_final[at].tolist() == [a == b for a, b in zip(look["token"], final, strict=True)]
            np.testing.assert_allclose(p[at], look["p"], rtol=1e-6)
            assert (p[~is_masked] == 1).all() and not is_final[~is_masked].any()


def test_traces_do_not_depend_on_company(engine: ripple.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    together = collect(engine, prompts(5), LENGTH, BLOCK)
    assert sorted(set(together.prompt.tolist())) == [0, 1, 2, 3, 4]
    monkeypatch.setattr(engine, "max_batch", 1)
    alone = collect(engine, prompts(5), LENGTH, BLOCK)
    np.testing.assert_allclose(together.p, alone.p, atol=1e-5)
    assert (together.is_final == alone.is_final).all() and (together.is_masked == alone.is_masked).all()


def test_training_lowers_the_loss_and_beats_the_majority_on_held_out_prompts(traces: Traces) -> None:
    made = fit(traces, steps=300)
    assert made.loss_last < 0.9 * made.loss_first
    assert made.held_out_accuracy > made.held_out_majority + 0.05
    assert made.held_out_loss < 0.95 * np.log(2)


def test_the_same_seed_gives_the_same_filter_and_another_seed_another(traces: Traces) -> None:
    first, again, other = (fit(traces, steps=20, seed=seed).filter for seed in (3, 3, 4))
    assert all((getattr(first, name) == getattr(again, name)).all() for name in TENSORS)
    assert not (first.w1 == other.w1).all()


def test_one_prompt_alone_gets_one_clear_sentence(traces: Traces) -> None:
    with pytest.raises(ripple.RippleError, match="at least 2 prompts, one to judge it by; got 1"):
        fit(traces.part(traces.prompt == 7))


def test_held_out_prompts_are_not_trained_on(traces: Traces) -> None:
    """Wrong labels on every held-out prompt ruin its scores and leave the weights as they were."""
    order = np.random.default_rng(0).permutation(150)
    is_held = np.isin(traces.prompt, order[:30])
    spoilt = traces._replace(is_final=np.where(is_held[:, None], ~traces.is_final, traces.is_final))
    right, wrong = fit(traces, steps=60), fit(spoilt, steps=60)
    assert all((getattr(right.filter, name) == getattr(wrong.filter, name)).all() for name in TENSORS)
    assert wrong.held_out_accuracy == pytest.approx(1 - right.held_out_accuracy)


def test_a_filter_survives_its_file(traces: Traces, tmp_path: Path) -> None:
    made = fit(traces, steps=20).filter
    path = tmp_path / "new" / "filter.safetensors"
    save(made, path, {"model": "tiny", "block": BLOCK})
    kept = read_filter(str(path))
    assert all((getattr(kept, name) == getattr(made, name)).all() for name in TENSORS)
    assert kept.metadata == {"model": "tiny", "block": "8"}
    assert set(load_file(path)) == set(TENSORS)  # the library of the format reads it too
    with safe_open(path, "numpy") as file:
        assert file.metadata() == kept.metadata
    p = traces.p[0]
    logits = made.w2 @ np.maximum(made.w1 @ p + made.b1, 0) + made.b2
    np.testing.assert_allclose(kept(p), 1 / (1 + np.exp(-logits.astype(np.float64))), rtol=1e-5)


@pytest.mark.parametrize("model", ["tiny-llada", "tiny-dream"])
def test_the_shipped_filters_decode_in_fewer_forwards_and_get_an_answer_right(model: str) -> None:
    task = ripple.tasks.get_task("words")
    items = task.test_items(2)
    engine = ripple.load(model, device="cpu", dtype="float32")
    results = engine.generate([item.prompt for item in items], decoder="learn2pd", length=96)
    assert max(result.nfe for result in results) < 48  # `default` needs 96
    assert any(task.score(item, result.text) for item, result in zip(items, results, strict=True))


def test_the_command_trains_on_lines_of_text(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "prompts.txt").write_text("one and two\n\nthree\nfour five\n")
    out = tmp_path / "filter.safetensors"
    done = cli(
        "train-filter", "--model", checkpoint, "--device", "cpu", "--out", out, "--length", 16, "--block", 8,
        "--prompts", tmp_path / "prompts.txt", "--items", 2, "--steps", 30, "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert facts["items"] == 2 and facts["reference"] == "confidence"
    assert facts["loss_last"] < facts["loss_first"]
    assert "prompts: 0 %" in done.err and "training steps: 0 %" in done.err
    assert read_filter(str(out)).block == 8
    engine = ripple.load(checkpoint, device="cpu")
    how = {"length": 16, "block": 8}
    used = engine.generate("hello", decoder=f"learn2pd:filter={out}", **how)
    assert used.nfe <= engine.generate("hello", decoder="default", **how).nfe


@pytest.mark.parametrize(
    "given, sentence",
    [
        (("--items", 0), "--items must be at least 1, got 0"),
        (("--prompts", "missing.txt"), "Cannot read the prompts missing.txt"),
        (("--reference", "defualt"), "Did you mean 'default'"),
        (("--out", "/dev/null"), "Cannot write the filter /dev/null: it is not a regular file"),
        (("--out", "/dev/null/filter"), "/dev/null is not a folder"),
    ],
)
def test_bad_options_get_one_clear_sentence(
    cli: Cli, checkpoint: Path, given: tuple[object, ...], sentence: str  # noqa: F811
) -> None:  # fmt: skip
    done = cli("train-filter", "--model", checkpoint, "--out", "never", *given)
    assert done.code == 2 and sentence in done.err
    assert not Path("never").exists()
