"""Nemotron-Labs-Diffusion: what its config.json may say, its rotary frequencies, its limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Ministral3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import ripple
from ripple.errors import RippleError
from ripple.models.base import ModelConfig, QueryScale
from ripple.models.config import read_config
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.models.rotary import inverse_frequencies

SIZES: dict[str, Any] = {"vocab_size": 320, "d_model": 32, "n_layers": 1, "n_kv_heads": 2, "d_ff": 32}
ROTATION = {
    "beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1, "mscale": 1.0,
    "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384, "rope_theta": 1e6, "rope_type": "yarn",
}  # fmt: skip


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The fields of the 8B model."""
    folder = write_random_checkpoint(tmp_path_factory.mktemp("nemotron"), "nemotron", **SIZES)
    sizes = {"hidden_size": 4096, "num_hidden_layers": 34, "num_attention_heads": 32, "head_dim": 128}
    sizes |= {"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 131072}
    rest = {"mask_token_id": 100, "eos_token_id": 11, "block_size": 32, "max_position_embeddings": 262144}
    raw: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return raw | sizes | rest | {"rope_parameters": ROTATION}


def read(folder: Path, raw: dict[str, Any], **changes: Any) -> ModelConfig:
    """Read a config with some fields changed; those of the rotation lie one level deeper."""
    deep = {
        name: changes.pop(name) for name in list(changes) if name in ROTATION or name == "attention_factor"
    }
    raw = raw | changes | ({"rope_parameters": raw["rope_parameters"] | deep} if deep else {})
    (folder / "config.json").write_text(json.dumps(raw))
    return read_config(folder)


def test_the_released_8b_is_read_from_its_fields(released: dict[str, Any], tmp_path: Path) -> None:
    config = read(tmp_path, released)
    assert (config.family, config.attention_block, config.causal_context) == ("nemotron", 32, True)
    assert (config.n_heads, config.n_kv_heads, config.head_dim, config.d_ff) == (32, 8, 128, 14336)
    assert (config.norm_eps, config.rope_theta, config.mask_id, config.end_ids) == (1e-5, 1e6, 100, (11,))
    assert (config.qk_norm, config.qkv_bias, config.tied_head, config.rope_fp32) == (False,) * 4
    assert config.query_scale == QueryScale(0.1, 16384)


@pytest.mark.parametrize(
    ("theta", "factor", "n_same", "n_divided"),
    [(1e6, 16.0, 21, 27), (1e9, 16.0, 14, 39), (1e6, 0.25, 21, 27)],
)
def test_rotary_frequencies_are_yarns(
    released: dict[str, Any], tmp_path: Path, theta: float, factor: float, n_same: int, n_divided: int
) -> None:
    """Of the 8B, the 14B and the 3B base model, whose factor is below 1."""
    config = read(tmp_path, released, rope_theta=theta, factor=factor)
    ours = inverse_frequencies(config)
    plain = 1 / theta ** (torch.arange(0, 128, 2).float() / 128)
    rotation = ROTATION | {"rope_theta": theta, "factor": factor}
    theirs, attention_factor = ROPE_INIT_FUNCTIONS["yarn"](
        Ministral3Config(head_dim=128, rope_parameters=rotation), torch.device("cpu")
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)
    assert attention_factor == 1.0
    ratio = plain / ours
    assert (
        int((abs(ratio - 1) < 1e-5).sum()) == n_same and int((abs(ratio - factor) < 1e-4).sum()) == n_divided
    )


def test_a_plain_rotation_has_no_yarn(released: dict[str, Any], tmp_path: Path) -> None:
    config = read(tmp_path, released, rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    assert (config.yarn, config.query_scale, config.rope_theta) == (None, None, 5e5)
    config = read(tmp_path, released | {"rope_parameters": None, "rope_theta": 3e5})
    assert (config.yarn, config.rope_theta) == (None, 3e5)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("dlm_paradigm", "block_diff", 'dlm_paradigm = "block_diff", which is not implemented'),
        ("attention_bias", True, "attention_bias = true, which is not implemented"),
        ("causal_context", False, "causal_context = false, which is not implemented"),
        ("use_qk_norm", True, "use_qk_norm = true, which is not implemented"),
        ("partial_rotary_factor", 0.5, "partial_rotary_factor = 0.5, which is not implemented"),
        ("layer_types", ["sliding_attention"], 'layer_types = ["sliding_attention"], which is not impl'),
        ("mlp_bias", True, "mlp_bias = true, which is not implemented"),
        ("sliding_window", 4096, "sliding_window = 4096, which is not implemented"),
        ("hidden_act", "gelu", 'hidden_act = "gelu", which is not implemented'),
        ("rope_parameters", 5, "rope_parameters = 5, but it must be an object"),
        (
            "rope_parameters",
            {"rope_type": "default", "partial_rotary_factor": 0.5},
            "rope_parameters.partial_rotary_factor = 0.5, which is not implemented",
        ),
        ("rope_type", "llama3", 'rope_parameters.rope_type = "llama3", which is not implemented'),
        ("attention_factor", 2.0, "rope_parameters.attention_factor = 2.0, which is not implemented"),
        ("mscale", 0.7, "rope_parameters.mscale = 0.7, but it must be as large as mscale_all_dim"),
        ("factor", 0, "rope_parameters.factor = 0, but it must be a number above 0"),
        ("factor", None, "lacks the field 'rope_parameters.factor'"),
        ("mask_token_id", -1, "mask_token_id = -1, but it must be a whole number"),
    ],
)
def test_what_is_not_implemented_is_named(
    released: dict[str, Any], tmp_path: Path, field: str, value: object, sentence: str
) -> None:
    with pytest.raises(RippleError) as caught:
        read(tmp_path, released, **{field: value})
    assert sentence in str(caught.value)


@pytest.mark.parametrize("name", ["type", "kind"])
def test_a_rotation_that_does_not_say_its_kind_is_refused(
    released: dict[str, Any], tmp_path: Path, name: str
) -> None:
    """It has the numbers of YaRN, which is not to be passed over."""
    rotation = {key: value for key, value in ROTATION.items() if key != "rope_type"} | {name: "yarn"}
    with pytest.raises(RippleError, match=r"lacks the field 'rope_parameters\.rope_type'"):
        read(tmp_path, released, rope_parameters=rotation)


def test_the_rotation_may_be_said_twice_but_not_in_two_ways(released: dict[str, Any], tmp_path: Path) -> None:
    """The released class writes it as rope_scaling, too."""
    assert read(tmp_path, released, rope_scaling=ROTATION) == read(tmp_path, released)
    for other in ({"rope_type": "linear", "factor": 4.0}, ROTATION | {"factor": 8.0}):
        with pytest.raises(RippleError, match=r"rope_scaling = .* null or the same as rope_parameters"):
            read(tmp_path, released, rope_scaling=other)
    with pytest.raises(RippleError, match=r"rope_scaling = .* null or the same as rope_parameters"):
        read(tmp_path, released | {"rope_parameters": None}, rope_scaling=ROTATION)


def test_the_vision_model_is_another_architecture(released: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RippleError, match="Unknown architecture 'NemotronLabsDiffusionVLMModel'"):
        read(tmp_path, released, architectures=["NemotronLabsDiffusionVLMModel"])


def test_the_context_is_causal_and_the_open_block_sees_all(released: dict[str, Any], tmp_path: Path) -> None:
    config = read(tmp_path, released, block_size=4)
    pos = np.arange(9)
    assert config.limits(pos, 9, 5).tolist() == [1, 2, 3, 4, 5, 9, 9, 9, 9]  # type: ignore[union-attr]
    assert config.limits(pos, 9, 9).tolist() == list(range(1, 10))  # type: ignore[union-attr]


def test_chat_is_without_a_thought(tmp_path: Path) -> None:
    engine = ripple.load(write_random_checkpoint(tmp_path, "nemotron", **SIZES), device="cpu")
    assert engine.tokenizer is not None
    ids = engine.tokenizer.encode_chat([{"role": "user", "content": "sum?"}])
    text = engine.tokenizer.decode(ids, skip_special=False)
    assert text == (
        "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nsum?<|im_end|>\n<|im_start|>assistant\n<think></think>"
    )
    assert engine.generate("the sum", length=4).prompt_tokens > 0
