"""What config.json may say, and what happens when it says something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ripple.errors import RippleError
from ripple.models.config import read_config
from ripple.models.families import FAMILIES
from ripple.models.forward_fields import NEUTRAL
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.models.shapes import SHAPES

ABSENT = object()


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The config.json of every family, parsed."""
    place = tmp_path_factory.mktemp("released")
    folders = {family: write_random_checkpoint(place / family, family) for family in FAMILIES}
    return {family: json.loads((path / "config.json").read_text()) for family, path in folders.items()}


def save(folder: Path, config: dict[str, Any], **changes: object) -> Path:
    """Write `config` with some fields replaced, or left out where the change is ABSENT."""
    merged = {key: value for key, value in (config | changes).items() if value is not ABSENT}
    (folder / "config.json").write_text(json.dumps(merged))
    return folder


def llada_8b(config: dict[str, Any]) -> dict[str, Any]:
    sizes = {"d_model": 4096, "n_heads": 32, "n_kv_heads": 32, "n_layers": 32, "mlp_hidden_size": 12288}
    rows = {"vocab_size": 126464, "embedding_size": 126464, "max_sequence_length": 4096}
    return config | sizes | rows | {"mask_token_id": 126336, "eos_token_id": 126081}


def test_llada_8b_is_read_from_its_released_fields(released, tmp_path):
    config = read_config(save(tmp_path, llada_8b(released["llada"])))
    assert (config.family, config.d_model, config.n_layers, config.d_ff) == ("llada", 4096, 32, 12288)
    assert (config.n_heads, config.n_kv_heads, config.head_dim) == (32, 32, 128)
    assert (config.norm_eps, config.rope_theta, config.max_positions) == (1e-5, 5e5, 4096)
    assert (config.vocab_size, config.mask_id, config.end_ids) == (126464, 126336, (126081,))
    assert (config.rope_fp32, config.qkv_bias, config.tied_head, config.logit_shift) == (
        True,
        False,
        False,
        0,
    )


def test_illada_needs_no_code_of_its_own(released, tmp_path):
    changes = {"n_kv_heads": 8, "mlp_hidden_size": 14336, "vocab_size": 155136, "embedding_size": 155136}
    changes |= {"weight_tying": True, "mask_token_id": 5, "eos_token_id": 2, "max_sequence_length": 8192}
    config = read_config(save(tmp_path, llada_8b(released["llada"]), **changes))
    assert (config.n_kv_heads, config.head_dim, config.d_ff) == (8, 128, 14336)
    assert (config.tied_head, config.mask_id, config.end_ids) == (True, 5, (2,))


def test_dream_7b_is_read_from_its_released_fields(released, tmp_path):
    changes = {
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "mask_token_id": 151666,
    }
    changes |= {"num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064}
    changes |= {"eos_token_id": 151643, "max_position_embeddings": 131072}
    config = read_config(save(tmp_path, released["dream"], **changes))
    assert (config.family, config.d_model, config.n_layers, config.d_ff) == ("dream", 3584, 28, 18944)
    assert (config.n_heads, config.n_kv_heads, config.head_dim) == (28, 4, 128)
    assert (config.norm_eps, config.rope_theta, config.max_positions) == (1e-6, 1e6, 131072)
    assert (config.vocab_size, config.mask_id, config.end_ids) == (152064, 151666, (151643,))
    assert (config.rope_fp32, config.qkv_bias, config.tied_head, config.logit_shift) == (
        False,
        True,
        False,
        1,
    )


@pytest.mark.parametrize("nothing", [None, ABSENT])
def test_null_sizes_of_llada_follow_from_others(released, tmp_path, nothing):
    changes = {"n_kv_heads": nothing, "mlp_hidden_size": nothing, "embedding_size": nothing}
    config = read_config(save(tmp_path, released["llada"], **changes))
    assert (config.n_kv_heads, config.d_ff, config.vocab_size) == (4, 4 * 64, 128)


def test_embedding_size_wins_over_vocab_size(released, tmp_path):
    assert (
        read_config(save(tmp_path, released["llada"], vocab_size=120, embedding_size=256)).vocab_size == 256
    )


def test_flags_with_an_implementation_are_honoured(released, tmp_path):
    config = read_config(save(tmp_path, released["llada"], include_qkv_bias=True, rope_full_precision=False))
    assert (config.qkv_bias, config.rope_fp32) == (True, False)
    assert not read_config(save(tmp_path, released["dream"], attention_bias=False)).qkv_bias


NOT_IMPLEMENTED = [
    ("llada", "alibi", True),
    ("llada", "block_group_size", 2),
    ("llada", "block_type", "sequential"),
    ("llada", "input_emb_norm", True),
    ("llada", "scale_logits", True),
    ("llada", "activation_type", "swiglu"),
    ("llada", "layer_norm_type", "default"),
    ("llada", "attention_layer_norm", True),
    ("llada", "include_bias", True),
    ("llada", "bias_for_layer_norm", True),
    ("llada", "rope", False),
    ("llada", "layer_norm_with_affine", False),
    ("llada", "multi_query_attention", True),
    ("llada", "quantization_config", {"bits": 4}),
    ("dream", "use_sliding_window", True),
    ("dream", "rope_scaling", {"type": "linear", "factor": 2.0}),
    ("dream", "use_mrope", True),
    ("dream", "hidden_act", "gelu"),
    ("dream", "quantization_config", {"bits": 4}),
]


@pytest.mark.parametrize(("family", "field", "value"), NOT_IMPLEMENTED)
def test_a_field_that_is_not_implemented_is_named_with_its_value(released, tmp_path, family, field, value):
    with pytest.raises(RippleError) as caught:
        read_config(save(tmp_path, released[family], **{field: value}))
    assert f"{field} = {json.dumps(value)}, which is not implemented" in str(caught.value)


UNUSUAL: dict[str, Any] = {
    "layer_types": ["full_attention", "sliding_attention"],
    "rope_parameters": {"rope_type": "yarn", "factor": 4.0},
}
FOREIGN = [
    (family, field) for family in FAMILIES for field in NEUTRAL if field not in FAMILIES[family].implemented
]


@pytest.mark.parametrize(("family", "field"), FOREIGN)
def test_what_would_change_the_forward_pass_is_refused_wherever_nothing_implements_it(
    released, tmp_path, family, field
):
    """Whatever the family: a field that another Llama-like model has may not be passed over."""
    with pytest.raises(RippleError, match=rf"says {field}(\.rope_type)? = .* not implemented"):
        read_config(save(tmp_path, released[family], **{field: UNUSUAL.get(field, 7)}))


@pytest.mark.parametrize("family", FAMILIES)
def test_what_says_that_nothing_is_unusual_is_read(released, tmp_path, family):
    plain = read_config(save(tmp_path, released[family]))
    spelled_out = {
        "attn_logit_softcapping": None, "layer_types": ["full_attention"] * 2, "mlp_bias": False,
        "num_nextn_predict_layers": 0, "rope_interleave": False,
    }  # fmt: skip
    assert read_config(save(tmp_path, released[family], **spelled_out)) == plain


@pytest.mark.parametrize("family", ["dream", "sdar", "llada2"])
def test_a_plain_rotation_may_stand_where_newer_files_have_it(released, tmp_path, family):
    changes = {"rope_theta": ABSENT, "rope_parameters": {"rope_type": "default", "rope_theta": 12345.0}}
    assert read_config(save(tmp_path, released[family], **changes)).rope_theta == 12345.0
    changes["rope_parameters"] = {"rope_theta": 12345.0, "factor": 4.0}
    with pytest.raises(RippleError, match=r"lacks the field 'rope_parameters\.rope_type'"):
        read_config(save(tmp_path, released[family], **changes))


REQUIRED = [
    *(("llada", field) for field in ("d_model", "n_heads", "n_layers", "rms_norm_eps", "rope_theta")),
    *(("llada", field) for field in ("mask_token_id", "max_sequence_length", "weight_tying", "eos_token_id")),
    # the released class would fall back to values that are not implemented
    *(
        ("llada", field)
        for field in ("block_type", "activation_type", "layer_norm_type", "rope", "include_bias")
    ),
    *(("dream", field) for field in ("hidden_size", "num_attention_heads", "num_hidden_layers")),
    *(("dream", field) for field in ("intermediate_size", "vocab_size", "rms_norm_eps", "rope_theta")),
    *(("dream", field) for field in ("mask_token_id", "max_position_embeddings", "eos_token_id")),
]


@pytest.mark.parametrize(("family", "field"), REQUIRED)
def test_a_missing_field_is_named(released, tmp_path, family, field):
    with pytest.raises(RippleError, match=f"config.json in .* lacks the field '{field}'"):
        read_config(save(tmp_path, released[family], **{field: ABSENT}))


@pytest.mark.parametrize("value", ["64", 6.5, -1, 0, True])
def test_a_size_must_be_a_positive_whole_number(released, tmp_path, value):
    with pytest.raises(RippleError, match=r"n_layers = .* must be"):
        read_config(save(tmp_path, released["llada"], n_layers=value))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"n_heads": 3, "n_kv_heads": 3}, "d_model 64 is no multiple of n_heads 3"),
        ({"n_kv_heads": 3}, "4 query heads are no multiple of 3 key heads"),
        ({"d_model": 12}, "even head size, not 3"),
        ({"mask_token_id": 128}, "token id 128 is outside the 128 rows"),
        ({"eos_token_id": 500}, "token id 500 is outside"),
        ({"eos_token_id": "x"}, 'eos_token_id = "x"'),
        ({"rope_theta": 0}, "rope_theta = 0, but it must be a number above 0"),
    ],
)
def test_fields_that_do_not_fit_together_are_refused(released, tmp_path, changes, sentence):
    with pytest.raises(RippleError, match=sentence):
        read_config(save(tmp_path, released["llada"], **changes))


@pytest.mark.parametrize("name", ["LLaDAMoEModelLM", "LLaDA3MoeModelLM", "LlamaForCausalLM"])
def test_an_unknown_architecture_is_named_with_the_supported_ones(released, tmp_path, name):
    with pytest.raises(RippleError) as caught:
        read_config(save(tmp_path, released["llada"], architectures=[name]))
    assert all(word in str(caught.value) for word in (name, "LLaDAModelLM", "DreamModel"))


@pytest.mark.parametrize("value", [ABSENT, [], None, [["x"]]])
def test_a_config_without_an_architecture_is_refused(released, tmp_path, value):
    with pytest.raises(RippleError, match="Unknown architecture"):
        read_config(save(tmp_path, released["llada"], architectures=value))


def test_broken_files_are_named(tmp_path):
    with pytest.raises(RippleError, match=r"folder .*nowhere does not exist"):
        read_config(tmp_path / "nowhere")
    with pytest.raises(RippleError, match=r"holds no config\.json"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(RippleError, match=r"config\.json cannot be read as JSON"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(RippleError, match="must hold a JSON object"):
        read_config(tmp_path)


def test_end_of_text_comes_before_end_of_turn_and_each_once(released, tmp_path):
    save(tmp_path, released["llada"], eos_token_id=[7, 8])
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [8, 9]}')
    assert read_config(tmp_path).end_ids == (7, 8, 9)
    (tmp_path / "tokenizer.json").write_text('{"added_tokens": [{"id": 11, "content": "<|eot_id|>"}]}')
    assert read_config(tmp_path).end_ids == (7, 8, 9, 11)
    (tmp_path / "added_tokens.json").write_text('{"<|eot_id|>": 12}')
    assert read_config(tmp_path).end_ids == (7, 8, 9, 12)
    (tmp_path / "tokenizer_config.json").write_text(
        '{"added_tokens_decoder": {"8": {"content": "<|eot_id|>"}}}'
    )
    assert read_config(tmp_path).end_ids == (7, 8, 9)


def test_families_agree_with_their_rows_and_share_no_architecture() -> None:
    architectures = [name for family in FAMILIES.values() for name in family.architectures]
    assert len(set(architectures)) == len(architectures)
    for name, family in FAMILIES.items():
        assert family.name == name and len(family.architectures) > 0 and len(family.hub_ids) > 0
        assert all(shape.family == name for shape in family.shapes.values())
    assert set(SHAPES) == {"llada-8b", "dream-7b", "sdar-8b-b32", "nemotron-8b", "llada2-mini"}
