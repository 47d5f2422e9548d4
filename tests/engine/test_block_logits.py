"""Every forward of a block-wise decoding beside transformers' own over the whole canvas, logit by logit."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import ripple
from ripple.canvas import Window
from ripple.engine.engine import Engine
from ripple.engine.work import Work
from ripple.look import Ask
from ripple.models.base import ModelConfig
from ripple.models.families import FAMILIES
from ripple.models.random_checkpoint import write_random_checkpoint
from tests.reference.blocks import block_causal_logits, causal_logits
from tests.reference.model import ReferenceModel

BLOCK, LENGTH = 8, 19
TOLERANCE = 1e-5
SHARP = re.compile(r"\.(q|k|query|key)_\w+\.weight$")  # what makes a random checkpoint's attention sharp
PROMPTS = [np.random.default_rng(n).integers(0, 56, n).tolist() for n in (3, 8, 9, 15, 33)]
"""Less than a block, whole blocks, one more and one less than whole blocks, several."""


class Pair:
    """A checkpoint behind the engine, and behind transformers."""

    def __init__(self, folder: Path) -> None:
        self.engine: Engine = ripple.load(folder, device="cpu", dtype="float32")
        self.witness = ReferenceModel(folder)

    @property
    def config(self) -> ModelConfig:
        return self.engine.model.config

    def logits(self, ids: list[int], ask: Ask) -> np.ndarray:
        """Rows [n, V] about each position of the canvas, by one forward under a dense mask."""
        if not self.config.causal_context:
            return block_causal_logits(self.witness, BLOCK)(ids)
        if not ask.next_token:
            return causal_logits(self.witness, len(ids) - BLOCK)(ids)
        start = ask.window.start  # the last row that is there predicts what comes next
        rows = causal_logits(self.witness, start)(ids[:start])
        return np.concatenate([rows[:1], rows])


@pytest.fixture(scope="module", params=["sdar", "nemotron", "llada2"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    sizes: dict[str, Any] = {"vocab_size": 64, "d_model": 32, "n_layers": 2, "n_kv_heads": 2, "d_ff": 64}
    how = {"seed": 7, "sharpness": 0.5, "block_size": BLOCK, "max_positions": 256} | sizes
    return Pair(write_random_checkpoint(tmp_path_factory.mktemp(request.param), request.param, **how))


@pytest.fixture(scope="module", params=["sdar", "nemotron", "llada2"])
def deeper(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Twice as deep, three times as wide, and logits that spread three times as far.

    Random checkpoints have sharp attention, which multiplies rounding in each layer; here it is as it comes.
    """
    sizes: dict[str, Any] = {"vocab_size": 96, "d_model": 96, "n_layers": 4, "n_kv_heads": 2, "d_ff": 256}
    how = {"seed": 3, "sharpness": 1.5, "head_dim": 32, "block_size": BLOCK, "max_positions": 256} | sizes
    folder = write_random_checkpoint(tmp_path_factory.mktemp(request.param), request.param, **how)
    tensors = load_file(folder / "model.safetensors")
    for ending, gain in FAMILIES[request.param].format.gains.items():
        for name in [name for name in tensors if name.endswith(ending) and SHARP.search(name)]:
            tensors[name] /= gain
    save_file(tensors, folder / "model.safetensors")
    return Pair(folder)


def kind(work: Work, config: ModelConfig) -> str:
    """Which forward of a block this is."""
    row = work.layout.base.row
    if work.ask.next_token:
        return "next token"
    if row.store_slot is None:
        return "step with branches" if work.ask.branches else "step"
    return "opening" if row.pos[0] else "prefill"


def run(pair: Pair, monkeypatch: pytest.MonkeyPatch, **how: Any) -> Counter[str]:
    """Decode every prompt; hold each row that a forward reads to the reference, and count the forwards."""
    runner, seen = pair.engine.runner, Counter[str]()
    forwards, canvas = runner.run, []

    def held_to_the_reference(work: list[Work]) -> Any:
        (one,) = work
        logits = runner.model.logits(runner.hidden_states([one.layout])).numpy()
        edits = [(), *one.ask.branches, ()]  # the last one for what is reread
        for span, edit in zip(one.layout.spans, edits, strict=False):
            ids = canvas[0].ids.tolist()
            for pos, token in edit:
                ids[pos] = token
            gap = np.abs(logits[span.rows] - pair.logits(ids, one.ask)[span.pos])
            assert not gap.size or gap.max() <= TOLERANCE
        seen[kind(one, pair.config)] += 1
        return forwards(work)

    monkeypatch.setattr(runner, "run", held_to_the_reference)
    for prompt in PROMPTS:
        request = pair.engine.submit(prompt, length=LENGTH, **how)
        canvas[:] = [request.canvas]
        list(pair.engine.drain([request]))
        assert request.result().is_full or request.result().finish == "end"
    return seen


@pytest.mark.parametrize("lookahead", ["packed", "batched"])
@pytest.mark.parametrize("decoder", ["default", "lopa:k=3", "edit:tau=0.2,tau_edit=0.1"])
def test_what_is_stored_merged_and_packed_equals_one_full_forward(
    pair: Pair, decoder: str, lookahead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In fp32 to 1e-5: the prefill, what opens a block and stores the one before, steps, and branches."""
    seen = run(pair, monkeypatch, decoder=decoder, cache="exact", lookahead=lookahead)
    opened = {"next token"} if pair.config.causal_context else {"prefill", "opening"}
    inside = "step with branches" if decoder.startswith("lopa") else "step"
    assert opened | {inside} <= set(seen) <= opened | {inside, "step"}


def test_what_is_recomputed_every_time_equals_it_too(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = run(pair, monkeypatch, decoder="lopa:k=3", cache="none")
    assert {"step with branches"} < set(seen) <= {"step with branches", "step", "next token"}


@pytest.mark.parametrize("cache", ["exact", "none"])
def test_four_layers_and_wider_logits_equal_it_as_closely(
    deeper: Pair, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = PROMPTS[-1] + [deeper.config.mask_id] * BLOCK
    assert deeper.logits(ids, Ask(Window(len(PROMPTS[-1]), len(ids)))).std() > 1.3
    assert "step with branches" in run(deeper, monkeypatch, decoder="lopa:k=3", cache=cache)


def test_the_difference_would_be_seen(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference whose blocks begin one position later is no witness of ours."""
    monkeypatch.setattr(
        Pair, "logits", lambda self, ids, ask: block_causal_logits(self.witness, BLOCK - 1)(ids)
    )
    with pytest.raises(ripple.RequestError, match="AssertionError"):
        run(pair, monkeypatch, decoder="default", cache="exact")
