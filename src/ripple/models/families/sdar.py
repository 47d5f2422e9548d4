"""SDAR: Qwen3's block; rows see everything up to the end of their own block, row i predicts token i."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ripple.models.base import ModelConfig
from ripple.models.byte_vocabulary import ByteVocabulary, added_tokens_decoder, tokenizer_json
from ripple.models.config_fields import MOST_LAYERS, MOST_POSITIONS, ConfigFields
from ripple.models.dense import Weights, empty_weights, unread_names
from ripple.models.families import dream
from ripple.models.families.family import CheckpointSizes, Family, ReleasedFormat
from ripple.models.forward_fields import ANY, Allowed
from ripple.models.json_files import write_json
from ripple.models.networks import dense_network

if TYPE_CHECKING:
    import torch

NAMES = dream.NAMES._replace(
    layer={
        **dream.NAMES.layer,
        "q_norm": "model.layers.{}.self_attn.q_norm.weight",
        "k_norm": "model.layers.{}.self_attn.k_norm.weight",
    }
)

_IMPLEMENTED: dict[str, Allowed] = {
    "hidden_act": ("silu",),
    "sliding_window": ANY,  # of layers that use_sliding_window or layer_types give one
    "tie_word_embeddings": (True, False, None),
    "use_qk_norm": (True, None),
}
# Released config files do not say the positions per block; a name says them at its end, or there are 4.
_NAMED_BLOCK = re.compile(r"[-_]b(\d{1,9})(?![a-z\d])", re.IGNORECASE)
_BLOCKS_OF_4 = re.compile(r"SDAR-[\d.]+B(-Chat)?", re.IGNORECASE)
_END_OF_TURN, _MASK = "<|im_end|>", "<|MASK|>"
_SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", _END_OF_TURN, _MASK)
_CHAT_TEMPLATE = (
    "{% for turn in messages %}"
    "{{ '<|im_start|>' + turn['role'] + '\n' + turn['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_8B = ModelConfig(
    family="sdar", d_model=4096, n_layers=36, n_heads=32, n_kv_heads=8, head_dim=128, d_ff=12288,
    vocab_size=151936, norm_eps=1e-6, rope_theta=1e6, rope_fp32=False, qkv_bias=False, tied_head=False,
    logit_shift=0, mask_id=151669, end_ids=(151643, 151645), max_positions=32768, attention_block=32,
    qk_norm=True,
)  # fmt: skip


def _read_config(fields: ConfigFields) -> ModelConfig:
    d_model, n_heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    return ModelConfig(
        family="sdar",
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
        qkv_bias=False,
        tied_head=fields.flag("tie_word_embeddings", default=False),
        logit_shift=0,
        mask_id=fields.mask_id(_MASK),
        end_ids=fields.end_ids(_END_OF_TURN),
        max_positions=fields.size("max_position_embeddings", most=MOST_POSITIONS),
        attention_block=fields.block_size(_named_block(fields.released_name)),
        qk_norm=True,
    )


def _named_block(name: str) -> int | None:
    """Return the block size that a model's name tells."""
    told: list[str] = _NAMED_BLOCK.findall(name)
    if told:
        return int(told[-1])
    return 4 if _BLOCKS_OF_4.fullmatch(name) else None


def _empty_weights(
    config: ModelConfig, device: torch.device, dtype: torch.dtype
) -> tuple[Weights, dict[str, torch.Tensor]]:
    return empty_weights(config, NAMES, device, dtype)


def _configs(sizes: CheckpointSizes, ids: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the training code ships, which has the block size and the mask; uploads lack both."""
    eos = ids["<|endoftext|>"]
    config = {
        "architectures": ["SDARForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "auto_map": {
            "AutoConfig": "configuration_sdar.SDARConfig",
            "AutoModelForCausalLM": "modeling_sdar.SDARForCausalLM",
        },
        "block_size": sizes.block_size,
        "bos_token_id": eos,
        "eos_token_id": eos,
        "fuse_cross_entropy": True,
        "head_dim": sizes.head_dim,
        "hidden_act": "silu",
        "hidden_size": sizes.d_model,
        "initializer_range": 0.02,
        "intermediate_size": sizes.d_ff,
        "mask_token_id": ids[_MASK],
        "max_position_embeddings": sizes.max_positions,
        "max_window_layers": sizes.n_layers,
        "model_type": "sdar",
        "num_attention_heads": sizes.n_heads,
        "num_hidden_layers": sizes.n_layers,
        "num_key_value_heads": sizes.n_kv_heads,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "tie_word_embeddings": sizes.tied_head,
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": sizes.vocab_size,
    }
    return config, {"bos_token_id": eos, "eos_token_id": [ids[_END_OF_TURN], eos], "pad_token_id": eos}


def _write_tokenizer(folder: Path, vocabulary: ByteVocabulary, ids: Mapping[str, int]) -> None:
    """Write tokenizer.json and settings; these name a Python class that is not there, as released."""
    settings = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": added_tokens_decoder(ids),
        "auto_map": {"AutoTokenizer": ["tokenization_qwen2.Qwen2Tokenizer", None]},
        "chat_template": _CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|endoftext|>",
        "mask_token": _MASK,
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "Qwen2Tokenizer",
    }
    write_json(folder / "tokenizer.json", tokenizer_json(vocabulary, ids))
    write_json(folder / "tokenizer_config.json", settings)


FAMILY = Family(
    name="sdar",
    architectures=("SDARForCausalLM",),
    about="blocks of 4 to 64; row i predicts token i; queries and keys normalised",
    hub_ids=("JetLM/SDAR-1.7B-Chat", "JetLM/SDAR-4B-Chat", "JetLM/SDAR-8B-Chat", "JetLM/SDAR-8B-Chat-b32"),
    shapes={"sdar-8b-b32": _8B},
    tokenizer_class="Qwen2Tokenizer",
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
        gains={"q_norm.weight": 2.0, "k_norm.weight": 2.0, "o_proj.weight": 2.0},
    ),
    attends_by_block=True,
)
