"""Dream-7B, Dream-Coder, DiffuCoder: Qwen2's block without causality; row i predicts token i + 1."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ripple.models.base import ModelConfig
from ripple.models.byte_vocabulary import ByteVocabulary, added_tokens_decoder
from ripple.models.config_fields import MOST_LAYERS, MOST_POSITIONS, ConfigFields
from ripple.models.dense import DenseNames, Weights, empty_weights, unread_names
from ripple.models.families.family import CheckpointSizes, Family, ReleasedFormat
from ripple.models.forward_fields import ANY, Allowed
from ripple.models.json_files import write_json
from ripple.models.networks import dense_network

if TYPE_CHECKING:
    import torch

NAMES = DenseNames(
    embed="model.embed_tokens.weight",
    norm="model.norm.weight",
    head="lm_head.weight",
    layer={
        "attn_norm": "model.layers.{}.input_layernorm.weight",
        "q": "model.layers.{}.self_attn.q_proj",
        "k": "model.layers.{}.self_attn.k_proj",
        "v": "model.layers.{}.self_attn.v_proj",
        "out": "model.layers.{}.self_attn.o_proj.weight",
        "mlp_norm": "model.layers.{}.post_attention_layernorm.weight",
        "gate": "model.layers.{}.mlp.gate_proj.weight",
        "up": "model.layers.{}.mlp.up_proj.weight",
        "down": "model.layers.{}.mlp.down_proj.weight",
    },
)

_IMPLEMENTED: dict[str, Allowed] = {
    "attention_bias": (True, False, None),
    "hidden_act": ("silu",),
    "sliding_window": ANY,  # of layers that use_sliding_window or layer_types give one
    "tie_word_embeddings": (True, False, None),
}
_END_OF_TURN = "<|im_end|>"
_SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", _END_OF_TURN, "<|beginoftext|>", "<|mask|>")
# ChatML: a system line is supplied when the conversation has none.
_CHAT_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
    "{% for turn in messages %}"
    "{{ '<|im_start|>' + turn['role'] + '\n' + turn['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_7B = ModelConfig(
    family="dream", d_model=3584, n_layers=28, n_heads=28, n_kv_heads=4, head_dim=128, d_ff=18944,
    vocab_size=152064, norm_eps=1e-6, rope_theta=1000000.0, rope_fp32=False, qkv_bias=True,
    tied_head=False, logit_shift=1, mask_id=151666, end_ids=(151643,), max_positions=8192,
)  # fmt: skip


def _read_config(fields: ConfigFields) -> ModelConfig:
    d_model, n_heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    return ModelConfig(
        family="dream",
        d_model=d_model,
        n_layers=fields.size("num_hidden_layers", most=MOST_LAYERS),
        n_heads=n_heads,
        n_kv_heads=fields.size("num_key_value_heads", default=n_heads),
        head_dim=fields.size("head_dim", default=d_model // n_heads),
        d_ff=fields.size("intermediate_size"),
        vocab_size=fields.size("vocab_size"),
        norm_eps=fields.positive("rms_norm_eps"),
        rope_theta=fields.of_rotation("rope_theta"),
        rope_fp32=False,
        qkv_bias=fields.flag("attention_bias", default=True),
        tied_head=fields.flag("tie_word_embeddings", default=False),
        logit_shift=1,
        mask_id=fields.integer("mask_token_id"),
        end_ids=fields.end_ids(_END_OF_TURN),
        max_positions=fields.size("max_position_embeddings", most=MOST_POSITIONS),
    )


def _empty_weights(
    config: ModelConfig, device: torch.device, dtype: torch.dtype
) -> tuple[Weights, dict[str, torch.Tensor]]:
    return empty_weights(config, NAMES, device, dtype)


def _configs(sizes: CheckpointSizes, ids: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, Any]]:
    eos = ids["<|endoftext|>"]
    text_ids = {"bos_token_id": eos, "eos_token_id": eos, "pad_token_id": eos}
    config = {
        "architectures": ["DreamModel"],
        "attention_dropout": 0.0,
        "auto_map": {
            "AutoConfig": "configuration_dream.DreamConfig",
            "AutoModel": "modeling_dream.DreamModel",
        },
        "hidden_act": "silu",
        "hidden_size": sizes.d_model,
        "initializer_range": 0.02,
        "intermediate_size": sizes.d_ff,
        "mask_token_id": ids["<|mask|>"],
        "max_position_embeddings": sizes.max_positions,
        "max_window_layers": sizes.n_layers,
        "model_type": "Dream",
        "num_attention_heads": sizes.n_heads,
        "num_hidden_layers": sizes.n_layers,
        "num_key_value_heads": sizes.n_kv_heads,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "tie_word_embeddings": sizes.tied_head,
        "use_cache": True,
        "use_mrope": False,
        "use_sliding_window": False,
        "vocab_size": sizes.vocab_size,
    }
    sampling = {"alg": "origin", "alg_temp": None, "eps": 0.001, "mask_token_id": None, "steps": 512}
    return config | text_ids, sampling | text_ids | {"temperature": 0.0, "top_k": None, "top_p": None}


def _write_tokenizer(folder: Path, vocabulary: ByteVocabulary, ids: Mapping[str, int]) -> None:
    """Write vocabulary, merges and settings; these name a Python class that is not there, as released."""
    settings = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": added_tokens_decoder(ids),
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
        "bos_token": "<|beginoftext|>",
        "chat_template": _CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|endoftext|>",
        "mask_token": "<|mask|>",
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "DreamTokenizer",
    }
    lines = ["#version: 0.2", *vocabulary.merge_lines]
    write_json(folder / "vocab.json", vocabulary.ids)
    write_json(folder / "added_tokens.json", dict(ids))
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_json(folder / "tokenizer_config.json", settings)


FAMILY = Family(
    name="dream",
    architectures=("DreamModel",),
    about="row i predicts token i + 1; biased, grouped queries",
    hub_ids=(
        "Dream-org/Dream-v0-Instruct-7B",
        "Dream-org/Dream-Coder-v0-Instruct-7B",
        "apple/DiffuCoder-7B-Instruct",
    ),
    shapes={"dream-7b": _7B},
    tokenizer_class="Qwen2Tokenizer",  # its settings ask for remote Python, but its files are Qwen2's
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
)
