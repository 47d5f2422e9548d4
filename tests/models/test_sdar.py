"""SDAR: what its config.json may say, where block size and mask come from, and its tokenizer."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import ripple
from ripple.errors import RippleError
from ripple.models.config import read_config
from ripple.models.random_checkpoint import write_random_checkpoint

SIZES: dict[str, Any] = {"vocab_size": 320, "d_model": 32, "n_layers": 1, "n_kv_heads": 2, "d_ff": 32}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sdar") / "SDAR-4B-Chat"
    return write_random_checkpoint(place, "sdar", head_dim=12, **SIZES)


def copy(folder: Path, to: Path, config: dict[str, Any] | None = None, drop: tuple[str, ...] = ()) -> Path:
    """Copy a checkpoint with other config fields."""
    to.mkdir(parents=True)
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    raw = json.loads((folder / "config.json").read_text()) | (config or {})
    kept = {name: value for name, value in raw.items() if name not in drop}
    (to / "config.json").write_text(json.dumps(kept))
    return to


def test_the_released_8b_is_read_from_its_fields(folder: Path, tmp_path: Path) -> None:
    sizes = {"hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32, "head_dim": 128}
    sizes |= {"num_key_value_heads": 8, "intermediate_size": 12288, "vocab_size": 151936}
    ids = {"mask_token_id": 151669, "eos_token_id": 151643, "max_position_embeddings": 32768}
    config = read_config(copy(folder, tmp_path / "SDAR-8B-Chat", sizes | ids))
    assert (config.family, config.qk_norm, config.attention_block) == ("sdar", True, 4)
    assert (config.n_heads, config.n_kv_heads, config.head_dim, config.d_ff) == (32, 8, 128, 12288)
    assert (config.norm_eps, config.rope_theta, config.rope_fp32) == (1e-6, 1e6, False)
    assert (config.qkv_bias, config.tied_head, config.logit_shift) == (False, False, 0)


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("SDAR-8B-Chat", 4),
        ("sdar-1.7b-chat", 4),
        ("SDAR-8B-Chat-b32", 32),
        ("SDAR-4B-Chat-b64", 64),
        ("SDAR-8B-Chat-B32", 32),
        ("sdar_8b_b32", 32),
        ("sdar_8b_b16_sft", 16),
        ("SDAR-8B-b32-bf16", 32),
    ],
)
def test_the_block_size_follows_from_the_models_name(
    folder: Path, tmp_path: Path, name: str, block: int
) -> None:
    """Uploaded config files name neither the block size nor the mask."""
    uploaded = ("block_size", "mask_token_id")
    for place in (tmp_path / name, tmp_path / f"models--JetLM--{name}" / "snapshots" / "0a1b2c"):
        config = read_config(copy(folder, place, drop=uploaded))
        assert (config.attention_block, config.mask_id) == (block, read_config(folder).mask_id)


@pytest.mark.parametrize("name", ["my-model", "SDAR-8B-bf16", "SDAR-8B-Chat-sft", "b32"])
def test_a_name_that_says_no_block_size_is_not_guessed_at(folder: Path, tmp_path: Path, name: str) -> None:
    place = copy(folder, tmp_path / name, drop=("block_size",))
    with pytest.raises(RippleError, match=rf"nor the name '{name}' says .* block_size \(--block-size\)"):
        read_config(place)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_config(place, block_size=32).attention_block == 32


@pytest.mark.parametrize(("name", "block"), [("x-b0", 0), ("x-b2048", 2048)])
def test_a_name_that_says_an_impossible_block_size_is_quoted(
    folder: Path, tmp_path: Path, name: str, block: int
) -> None:
    with pytest.raises(
        RippleError, match=f"The name '{name}' says blocks of {block}, but they have 1 to 1024"
    ):
        read_config(copy(folder, tmp_path / name, drop=("block_size",)))


def test_the_config_comes_before_the_name_and_the_caller_before_both_with_a_warning(
    folder: Path, tmp_path: Path
) -> None:
    place = copy(folder, tmp_path / "SDAR-b32", {"block_size": 16})
    assert read_config(place).attention_block == 16
    with pytest.warns(UserWarning, match="SDAR-b32 was trained with blocks of 16, not of 8") as told:
        assert ripple.load(place, device="cpu", block_size=8).model.config.attention_block == 8
    assert len(told) == 1
    uploaded = copy(folder, tmp_path / "SDAR-8B-Chat-b32", drop=("block_size",))
    with pytest.warns(UserWarning, match="SDAR-8B-Chat-b32 was trained with blocks of 32, not of 4"):
        read_config(uploaded, block_size=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_config(place, block_size=16).attention_block == 16


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attention_bias", True), ("hidden_act", "gelu"), ("rope_scaling", {"type": "yarn", "factor": 4.0}),
        ("use_sliding_window", True), ("quantization_config", {"bits": 4}), ("mlp_bias", True),
        ("num_experts", 8), ("partial_rotary_factor", 0.5), ("use_qk_norm", False),
        ("layer_types", ["full_attention", "sliding_attention"]),
    ],
)  # fmt: skip
def test_a_field_that_is_not_implemented_is_named(
    folder: Path, tmp_path: Path, field: str, value: object
) -> None:
    with pytest.raises(RippleError, match=f"says {field} = .* not implemented"):
        read_config(copy(folder, tmp_path / "x", {field: value}))


@pytest.mark.parametrize("value", [0, 2000, "4"])
def test_a_wrong_block_size_in_the_config_is_named(folder: Path, tmp_path: Path, value: object) -> None:
    with pytest.raises(RippleError, match=r"block_size = .* must be"):
        read_config(copy(folder, tmp_path / "x", {"block_size": value}))


@pytest.mark.parametrize("value", [0, -1, 2000, "32", 2.5, True])
def test_wrong_block_sizes_of_the_caller_are_refused(folder: Path, value: Any) -> None:
    with pytest.raises(RippleError, match=f"block_size must be a whole number of 1 to 1024, got {value!r}"):
        ripple.load(folder, device="cpu", block_size=value)


def test_other_models_have_no_block_size(tmp_path: Path) -> None:
    with pytest.raises(RippleError, match="models that attend block by block, which LLaDAModelLM does not"):
        ripple.load(write_random_checkpoint(tmp_path, vocab_size=64), device="cpu", block_size=8)


def test_a_folder_without_any_mask_says_so(folder: Path, tmp_path: Path) -> None:
    place = copy(folder, tmp_path / "x", drop=("mask_token_id",))
    (place / "tokenizer_config.json").unlink()
    assert read_config(place).mask_id == read_config(folder).mask_id  # tokenizer.json lists it, too
    (place / "tokenizer.json").unlink()
    with pytest.raises(RippleError, match="lacks the field 'mask_token_id', and no tokenizer file"):
        read_config(place)


def test_chat_ends_with_the_assistants_turn(folder: Path) -> None:
    engine = ripple.load(folder, device="cpu")
    assert engine.tokenizer is not None
    ids = engine.tokenizer.encode_chat([{"role": "user", "content": "the sum?"}])
    text = engine.tokenizer.decode(ids, skip_special=False)
    assert text == "<|im_start|>user\nthe sum?<|im_end|>\n<|im_start|>assistant\n"
    ends = [engine.tokenizer.encode(token)[0] for token in ("<|endoftext|>", "<|im_end|>")]
    assert set(engine.model.config.end_ids) == set(ends)
