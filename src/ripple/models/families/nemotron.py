"""Nemotron-Labs-Diffusion: Ministral's block; the context is causal and predicts each block's first token."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ripple.models.base import ModelConfig, QueryScale, Yarn
from ripple.models.byte_vocabulary import ByteVocabulary, added_tokens_decoder, tokenizer_json
from ripple.models.config_fields import MOST_LAYERS, MOST_POSITIONS, ConfigFields
from ripple.models.dense import DenseNames, Weights, empty_weights, unread_names
from ripple.models.families import dream
from ripple.models.families.family import CheckpointSizes, Family, ReleasedFormat
from ripple.models.forward_fields import ANY, PLAIN_ROTATION, Allowed
from ripple.models.json_files import write_json
from ripple.models.networks import dense_network

if TYPE_CHECKING:
    import torch

NAMES = DenseNames(
    embed="encoder.embed_tokens.weight",
    norm="encoder.norm.weight",
    head="diffusion_head.weight",
    layer={role: "encoder" + name.removeprefix("model") for role, name in dream.NAMES.layer.items()},
)

_IMPLEMENTED: dict[str, Allowed] = {
    "causal_context": (True, None),
    "dlm_paradigm": ("bidirectional", None),
    "hidden_act": ("silu", None),
    "rope_parameters": PLAIN_ROTATION
    | {"attention_factor": (1.0, None), "rope_type": ("yarn", "default"), "truncate": (True, None)},
    "rope_scaling": ANY,  # the released class writes rope_parameters a second time under this name
    "tie_word_embeddings": (True, False, None),
}
_BLOCK, _HEAD_DIM, _THETA = 32, 128, 1e6  # where config.json does not say
_END_OF_TURN, _MASK = "<|im_end|>", "<mask>"
_SPECIAL_TOKENS = ("</s>", "<|im_start|>", _END_OF_TURN, _MASK)
# ChatML: an empty system turn where there is none, and an empty thought.
_CHAT_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n<|im_end|>\n' }}{% endif %}"
    "{% for turn in messages %}"
    "{{ '<|im_start|>' + turn['role'] + '\n' + turn['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think></think>' }}{% endif %}"
)

_8B = ModelConfig(
    family="nemotron", d_model=4096, n_layers=34, n_heads=32, n_kv_heads=8, head_dim=128, d_ff=14336,
    vocab_size=131072, norm_eps=1e-5, rope_theta=1e6, rope_fp32=False, qkv_bias=False, tied_head=False,
    logit_shift=0, mask_id=100, end_ids=(11,), max_positions=262144, attention_block=32, causal_context=True,
    yarn=Yarn(16.0, 16384, 32.0, 1.0), query_scale=QueryScale(0.1, 16384),
)  # fmt: skip


def _read_config(fields: ConfigFields) -> ModelConfig:
    rotation = fields.inner("rope_parameters")
    if fields.raw.get("rope_scaling") not in (None, fields.raw.get("rope_parameters")):
        raise fields.malformed("rope_scaling", "null or the same as rope_parameters")
    n_heads = fields.size("num_attention_heads")
    return ModelConfig(
        family="nemotron",
        d_model=fields.size("hidden_size"),
        n_layers=fields.size("num_hidden_layers", most=MOST_LAYERS),
        n_heads=n_heads,
        n_kv_heads=fields.size("num_key_value_heads", default=n_heads),
        head_dim=fields.size("head_dim", default=_HEAD_DIM),
        d_ff=fields.size("intermediate_size"),
        vocab_size=fields.size("vocab_size"),
        norm_eps=fields.positive("rms_norm_eps"),
        rope_theta=fields.of_rotation("rope_theta", default=_THETA),
        rope_fp32=False,
        qkv_bias=False,
        tied_head=fields.flag("tie_word_embeddings", default=False),
        logit_shift=0,
        mask_id=fields.mask_id(_MASK),
        end_ids=fields.end_ids(_END_OF_TURN),
        max_positions=fields.size("max_position_embeddings", most=MOST_POSITIONS),
        attention_block=fields.block_size(_BLOCK),
        causal_context=True,
        yarn=_yarn(rotation) if rotation.raw.get("rope_type") == "yarn" else None,
        query_scale=_query_scale(rotation),
    )


def _yarn(rotation: ConfigFields) -> Yarn:
    factor, mscale = rotation.positive("factor"), rotation.raw.get("mscale")
    if factor > 1 and (not mscale or mscale != rotation.raw.get("mscale_all_dim")):
        raise rotation.malformed("mscale", "as large as mscale_all_dim, so that cos and sin keep their size")
    return Yarn(
        factor=factor,
        n_positions=rotation.size("original_max_position_embeddings", most=MOST_POSITIONS),
        beta_fast=rotation.positive("beta_fast", default=32.0),
        beta_slow=rotation.positive("beta_slow", default=1.0),
    )


def _query_scale(rotation: ConfigFields) -> QueryScale | None:
    if not rotation.raw.get("llama_4_scaling_beta"):
        return None
    n_positions = rotation.size("original_max_position_embeddings", most=MOST_POSITIONS)
    return QueryScale(rotation.positive("llama_4_scaling_beta"), n_positions)


def _empty_weights(
    config: ModelConfig, device: torch.device, dtype: torch.dtype
) -> tuple[Weights, dict[str, torch.Tensor]]:
    return empty_weights(config, NAMES, device, dtype)


def _configs(sizes: CheckpointSizes, ids: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, Any]]:
    original = max(8, sizes.max_positions // 16)  # so that the queries' scale shows on small canvases
    config = {
        "architectures": ["NemotronLabsDiffusionModel"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_implementation": "sdpa",
        "auto_map": {
            "AutoConfig": "configuration_nemotron_labs_diffusion.NemotronLabsDiffusionConfig",
            "AutoModel": "modeling_nemotron_labs_diffusion.NemotronLabsDiffusionModel",
        },
        "block_size": sizes.block_size,
        "bos_token_id": 1,
        "dlm_loss_weight": None,
        "dlm_paradigm": "bidirectional",
        "dp_varying_mask_ratio": False,
        "eos_token_id": ids[_END_OF_TURN],
        "head_dim": sizes.head_dim,
        "hidden_act": "silu",
        "hidden_size": sizes.d_model,
        "initializer_range": 0.02,
        "intermediate_size": sizes.d_ff,
        "mask_token_id": ids[_MASK],
        "max_position_embeddings": sizes.max_positions,
        "mlp_bias": False,
        "model_type": "nemotron_labs_diffusion",
        "num_attention_heads": sizes.n_heads,
        "num_hidden_layers": sizes.n_layers,
        "num_key_value_heads": sizes.n_kv_heads,
        "rms_norm_eps": 1e-05,
        "rope_parameters": {
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 16.0,
            "llama_4_scaling_beta": 0.1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "original_max_position_embeddings": original,
            "rope_theta": 1000000.0,
            "rope_type": "yarn",
        },
        "sliding_window": None,
        "tie_word_embeddings": sizes.tied_head,
        "use_cache": True,
        "vocab_size": sizes.vocab_size,
    }
    return config, {"bos_token_id": 1, "eos_token_id": [ids[_END_OF_TURN], ids["</s>"]]}


def _write_tokenizer(folder: Path, vocabulary: ByteVocabulary, ids: Mapping[str, int]) -> None:
    settings = {
        "added_tokens_decoder": added_tokens_decoder(ids),
        "chat_template": _CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": _END_OF_TURN,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    write_json(folder / "tokenizer.json", tokenizer_json(vocabulary, ids))
    write_json(folder / "tokenizer_config.json", settings)


FAMILY = Family(
    name="nemotron",
    architectures=("NemotronLabsDiffusionModel",),
    about="blocks of 32 after the prompt; the context is causal and predicts each block's first token",
    hub_ids=(
        "nvidia/Nemotron-Labs-Diffusion-3B",
        "nvidia/Nemotron-Labs-Diffusion-8B",
        "nvidia/Nemotron-Labs-Diffusion-14B",
    ),
    shapes={"nemotron-8b": _8B},
    tokenizer_class="PreTrainedTokenizerFast",
    implemented=_IMPLEMENTED,
    read_config=_read_config,
    empty_weights=_empty_weights,
    unread=unread_names(NAMES),
    network=dense_network,
    format=ReleasedFormat(
        special_tokens=_SPECIAL_TOKENS,
        configs=_configs,
        write_tokenizer=_write_tokenizer,
        embed=NAMES.embed,
        head=NAMES.head,
        gains={"q_proj.weight": 3.0, "k_proj.weight": 3.0, "o_proj.weight": 2.0},
    ),
    attends_by_block=True,
)
