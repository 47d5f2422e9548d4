"""Learn2PD: its rule against a literal transcription, its files, its complaints."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import ripple
from ripple.decoders.learn2pd import read_filter
from ripple.models.random_checkpoint import write_random_checkpoint
from tests.reference.decoders import reference_learn2pd
from tests.reference.model import ReferenceModel

SHAPES = ((24, 8), (20, 7), (16, 16), (17, 4))


def write_filter(path: Path, block: int = 16, seed: int = 0, eager: float = 0.0) -> Path:
    """A random filter; the more eager, the more it accepts."""
    rng = np.random.default_rng(seed)
    tensors = {
        "w1": rng.normal(size=(12, block)), "b1": rng.normal(size=12),
        "w2": rng.normal(size=(block, 12)), "b2": rng.normal(size=block) + eager,
    }  # fmt: skip
    save_file({name: array.astype(np.float32) for name, array in tensors.items()}, path, {"model": "none"})
    return path


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> dict[str, ReferenceModel]:
    return {family: ReferenceModel(folder) for family, folder in folders.items()}


@pytest.fixture
def notes() -> Counter[str]:
    return Counter()


@pytest.mark.parametrize("with_end", [False, True])
def test_tokens_and_nfe_equal_the_literal_rule(
    engine: ripple.Engine, models: dict[str, ReferenceModel], family: str, tmp_path: Path, with_end: bool,
    notes: Counter[str],
) -> None:  # fmt: skip
    model = models[family]
    for seed in range(12):
        path = write_filter(tmp_path / f"{seed}.safetensors", seed=seed, eager=-2.0)
        prompt = np.random.default_rng(seed).integers(0, 40, size=3 + seed % 4).tolist()
        length, block = SHAPES[seed % len(SHAPES)]
        plain = engine.generate(prompt, decoder="confidence", length=length, block=block)
        end = plain.token_ids[-1 - seed % 5] if with_end else -1  # a token that does occur
        expected = reference_learn2pd(
            model.logits, prompt, length, block, model.mask_id, load_file(path), 0.6, end, notes
        )
        decoder = ripple.Learn2PD(filter=str(path), threshold=0.6, end_token=end)
        result = engine.generate(prompt, decoder=decoder, length=length, block=block)
        assert (result.token_ids, result.nfe) == expected, seed
    assert notes["accepted"] > 0 and notes["best_only"] > 0
    assert not with_end or (notes["accepted_end"] > 0 and notes["hopeful_end"] > 0), notes


def test_a_filter_that_accepts_nothing_leaves_one_token_per_step(
    engine: ripple.Engine, tmp_path: Path
) -> None:
    path = write_filter(tmp_path / "shy.safetensors", eager=-1e6)
    shy = engine.generate([5, 6], decoder=ripple.Learn2PD(filter=str(path)), length=16, block=8)
    default = engine.generate([5, 6], decoder="default", length=16, block=8)
    assert (shy.token_ids, shy.nfe) == (default.token_ids, 16)


def test_a_filter_that_accepts_everything_needs_one_forward_per_block(
    engine: ripple.Engine, tmp_path: Path
) -> None:
    path = write_filter(tmp_path / "bold.safetensors", eager=1e6)
    result = engine.generate([5, 6], decoder=ripple.Learn2PD(filter=str(path)), length=20, block=8)
    assert result.nfe == 3


@pytest.mark.parametrize("name", ["tiny-llada", "tiny-dream"])
def test_both_embedded_models_come_with_a_filter_of_their_own(name: str) -> None:
    trained = read_filter(name)
    assert trained.block == 32 and trained.metadata["model"] == name
    engine = ripple.load(name, device="cpu")
    assert engine.decoder_of(ripple.Options("learn2pd")) == ripple.Learn2PD(filter=name)


def test_a_model_without_a_filter_is_told_how_to_get_one(tmp_path: Path) -> None:
    write_random_checkpoint(tmp_path, vocab_size=64, d_model=32, n_heads=4, d_ff=64)
    engine = ripple.load(tmp_path, device="cpu")
    for decoder in ("learn2pd", ripple.RPS(standard=ripple.Learn2PD())):
        with pytest.raises(ripple.RippleError, match=r"no filter.safetensors in its folder.*train-filter"):
            engine.submit([1], decoder=decoder, length=8)
    assert engine.n_waiting == 0


def test_a_missing_filter_gets_one_clear_sentence(engine: ripple.Engine) -> None:
    for name in ("tiny-lada", "no/such/file.safetensors", ""):
        with pytest.raises(ripple.RippleError, match="neither a filter file nor an embedded model with one"):
            engine.generate([1], decoder=ripple.Learn2PD(filter=name), length=8, block=4)


def test_a_block_that_exceeds_the_filter_gets_one_clear_sentence(
    engine: ripple.Engine, tmp_path: Path
) -> None:
    small = ripple.Learn2PD(filter=str(write_filter(tmp_path / "f.safetensors", block=4)))
    for decoder in (small, ripple.RPS(standard=small)):
        with pytest.raises(ripple.RippleError, match="trained for blocks of 4, which a block of 8 exceeds"):
            engine.generate([1], decoder=decoder, length=8, block=8)
    assert len(engine.generate([1], decoder=small, length=8, block=4).token_ids) == 8


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"\xff" * 40, (9).to_bytes(8, "little") + b"[1, 2, 3]"], ids=repr
)
def test_a_file_that_is_no_filter_gets_one_clear_sentence(
    engine: ripple.Engine, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "broken.safetensors"
    path.write_bytes(content)
    with pytest.raises(ripple.RippleError, match="is not a filter made by"):
        read_filter(str(path))


def test_a_truncated_or_mismatched_filter_is_refused(tmp_path: Path) -> None:
    path = write_filter(tmp_path / "f.safetensors")
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ripple.RippleError, match="is not a filter made by"):
        read_filter(str(path))
    odd = {name: np.zeros(shape, dtype=np.float32) for name, shape in
           {"w1": (3, 4), "b1": (3,), "w2": (5, 3), "b2": (5,)}.items()}  # fmt: skip
    save_file(odd, tmp_path / "odd.safetensors")
    with pytest.raises(ripple.RippleError, match="layers do not fit"):
        read_filter(str(tmp_path / "odd.safetensors"))


def test_bad_fields_get_one_clear_sentence() -> None:
    with pytest.raises(ripple.RippleError, match="threshold must lie in"):
        ripple.decoder("learn2pd", threshold=0)
    with pytest.raises(ripple.RippleError, match="end_token must be a whole number"):
        ripple.decoder("learn2pd", end_token=-2)
