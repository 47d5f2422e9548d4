"""LLaDA2.0 and 2.1: what config.json may say, where its experts are, its chat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import ripple
from ripple.errors import RippleError
from ripple.models.base import ExpertsConfig
from ripple.models.config import read_config
from ripple.models.families import FAMILIES
from ripple.models.load import load_model
from ripple.models.random_checkpoint import write_random_checkpoint

SIZES: dict[str, Any] = {"vocab_size": 320, "d_model": 32, "n_layers": 2, "n_kv_heads": 2, "d_ff": 32}
MINI = {
    "hidden_size": 2048, "num_hidden_layers": 20, "num_attention_heads": 16, "num_key_value_heads": 4,
    "head_dim": 128, "intermediate_size": 5120, "moe_intermediate_size": 512, "num_experts": 256,
    "num_experts_per_tok": 8, "num_shared_experts": 1, "n_group": 8, "topk_group": 4, "vocab_size": 157184,
    "max_position_embeddings": 32768, "pad_token_id": 156892, "rotary_dim": 64, "output_dropout": 0.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_checkpoint(tmp_path_factory.mktemp("llada2"), "llada2", **SIZES)


def copy(folder: Path, to: Path, drop: tuple[str, ...] = (), **changes: Any) -> Path:
    """Copy a checkpoint with other config fields; uploaded ones have neither block size nor mask."""
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    raw = json.loads((folder / "config.json").read_text()) | changes
    (to / "config.json").write_text(json.dumps({k: v for k, v in raw.items() if k not in drop}))
    return to


def test_the_released_mini_is_read_from_its_fields(folder: Path, tmp_path: Path) -> None:
    place = copy(folder, tmp_path, drop=("block_size", "mask_token_id"), **MINI)
    decoder = {"156895": {"content": "<|mask|>"}, "156900": {"content": "<|role_end|>"}}
    settings = {"added_tokens_decoder": decoder, "mask_token": "<|mask|>"}
    (place / "tokenizer_config.json").write_text(json.dumps(settings))
    config = read_config(place)
    assert isinstance(config, ExpertsConfig)
    assert (config.attention_block, config.mask_id, config.end_ids) == (32, 156895, (156892, 156900))
    assert (config.qk_norm, config.rotary_dim, config.rope_theta) == (True, 64, 6e5)
    assert (config.n_dense, config.n_experts, config.n_chosen, config.expert_ff) == (1, 256, 8, 512)
    assert (config.n_groups, config.n_groups_chosen, config.routed_scale) == (8, 4, 2.5)

    _, places = FAMILIES["llada2"].empty_weights(config, torch.device("meta"), torch.bfloat16)
    assert len(places) == 14_813, "tensors in the released index"
    assert sum(tensor.numel() for tensor in places.values()) == 16_255_643_392
    assert places["model.layers.1.mlp.gate.expert_bias"].dtype == torch.float32


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("expert_capacity", 1.5), ("score_function", "softmax"), ("norm_topk_prob", False),
        ("moe_router_enable_expert_bias", False), ("router_dtype", "bf16"), ("norm_head", True),
        ("use_qkv_bias", True), ("use_bias", True), ("use_qk_norm", False), ("use_sliding_window", True),
        ("moe_shared_expert_intermediate_size", 64),
        ("num_experts_per_block", 48), ("num_nextn_predict_layers", 1), ("attention_bias", True),
        ("rope_scaling", {"type": "linear"}), ("model_type", "llada2_moe_veomni"), ("hidden_act", "gelu"),
    ],
)  # fmt: skip
def test_a_field_that_is_not_implemented_is_named(
    folder: Path, tmp_path: Path, field: str, value: object
) -> None:
    with pytest.raises(RippleError, match=f"says {field} = .* not implemented"):
        read_config(copy(folder, tmp_path, **{field: value}))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"n_group": 3}, "n_group = 3, but it must be a divisor of num_experts"),
        ({"n_group": 16}, "leaves at least 2 to a group"),
        ({"topk_group": 5}, "topk_group = 5, but it must be at most n_group"),
        ({"num_experts_per_tok": 9}, "groups enough for num_experts_per_tok"),
        ({"partial_rotary_factor": 0.4}, "an even part of a head is rotated, not 3"),
        ({"pad_token_id": None}, "lacks the field 'eos_token_id'"),
        ({"rotary_dim": 8}, "rotary_dim = 8, but it must be 4, as partial_rotary_factor says"),
        ({"first_k_dense_replace": 3}, "first_k_dense_replace = 3, but it must be at most 2"),
        ({"rope_parameters": {"rope_type": "yarn"}}, 'rope_parameters.rope_type = "yarn", which is not'),
    ],
)
def test_fields_that_do_not_fit_together_are_refused(
    folder: Path, tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(RippleError, match=sentence):
        read_config(copy(folder, tmp_path, **changes))


def test_absent_fields_are_what_the_released_class_takes_them_for(folder: Path, tmp_path: Path) -> None:
    """Half of each head is rotated; products have biases, which are not implemented."""
    config = read_config(copy(folder, tmp_path, drop=("partial_rotary_factor",)))
    assert config.rotary_dim == config.head_dim // 2
    rotation = {"rope_type": "default", "rope_theta": 6e5, "partial_rotary_factor": 0.25}
    config = read_config(copy(folder, tmp_path, rope_parameters=rotation))
    assert config.rotary_dim == config.head_dim // 4
    with pytest.raises(RippleError, match="lacks the field 'use_bias'"):
        read_config(copy(folder, tmp_path, drop=("use_bias",)))


def test_a_window_that_is_not_used_is_ignored(folder: Path) -> None:
    raw = json.loads((folder / "config.json").read_text())
    assert raw["sliding_window"] == 4096 and not raw["use_sliding_window"]


def test_a_missing_expert_is_named(folder: Path, tmp_path: Path) -> None:
    place = copy(folder, tmp_path)
    tensors = load_file(place / "model.safetensors")
    for expert in (3, 7):
        del tensors[f"model.layers.1.mlp.experts.{expert}.up_proj.weight"]
    save_file(tensors, place / "model.safetensors")
    with pytest.raises(RippleError, match=r"lacks the tensor .*experts\.3\.up_proj\.weight\" and 1 more"):
        load_model(place, "cpu")


def test_chat_has_a_system_turn_that_turns_thinking_off(folder: Path) -> None:
    tokenizer = ripple.load(folder, device="cpu").tokenizer
    assert tokenizer is not None
    ids = tokenizer.encode_chat([{"role": "user", "content": "sum?"}])
    assert tokenizer.decode(ids, skip_special=False) == (
        "<role>SYSTEM</role>detailed thinking off<|role_end|><role>HUMAN</role>sum?<|role_end|>"
        "<role>ASSISTANT</role>"
    )
