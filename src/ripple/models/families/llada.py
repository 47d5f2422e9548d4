"""LLaDA-8B, LLaDA-1.5, iLLaDA: Llama's block without causality; row i predicts token i."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ripple.errors import RippleError
from ripple.models.base import ModelConfig
from ripple.models.byte_vocabulary import ByteVocabulary, added_tokens_decoder, tokenizer_json
from ripple.models.config_fields import MOST, MOST_LAYERS, MOST_POSITIONS, ConfigFields
from ripple.models.dense import DenseNames, Weights, empty_weights, unread_names
from ripple.models.families.family import CheckpointSizes, Family, ReleasedFormat
from ripple.models.forward_fields import Allowed
from ripple.models.json_files import write_json
from ripple.models.networks import dense_network

if TYPE_CHECKING:
    import torch

NAMES = DenseNames(
    embed="model.transformer.wte.weight",
    norm="model.transformer.ln_f.weight",
    head="model.transformer.ff_out.weight",
    layer={
        "attn_norm": "model.transformer.blocks.{}.attn_norm.weight",
        "q": "model.transformer.blocks.{}.q_proj",
        "k": "model.transformer.blocks.{}.k_proj",
        "v": "model.transformer.blocks.{}.v_proj",
        "out": "model.transformer.blocks.{}.attn_out.weight",
        "mlp_norm": "model.transformer.blocks.{}.ff_norm.weight",
        "gate": "model.transformer.blocks.{}.ff_proj.weight",
        "up": "model.transformer.blocks.{}.up_proj.weight",
        "down": "model.transformer.blocks.{}.ff_out.weight",
    },
)

_IMPLEMENTED: dict[str, Allowed] = {
    "activation_type": ("silu",),
    "alibi": (False, None),
    "attention_layer_norm": (False, None),
    "bias_for_layer_norm": (False, None),
    "block_group_size": (1, None),
    "block_type": ("llama",),
    "include_bias": (False,),
    "include_qkv_bias": (True, False, None),
    "input_emb_norm": (False, None),
    "layer_norm_type": ("rms",),
    "layer_norm_with_affine": (True, None),
    "multi_query_attention": (False, None),
    "rope": (True,),
    "rope_full_precision": (True, False, None),
    "scale_logits": (False, None),
    "weight_tying": (True, False),
}
_END_OF_TURN = "<|eot_id|>"
_SPECIAL_TOKENS = (
    "<|startoftext|>",
    "<|endoftext|>",
    "<|mdm_mask|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    _END_OF_TURN,
)
# It writes the first token itself and always ends with an open assistant turn, whatever it is asked.
_CHAT_TEMPLATE = (
    "{{ bos_token }}{% for turn in messages %}"
    "{{ '<|start_header_id|>' + turn['role'] + '<|end_header_id|>\n\n' }}"
    "{{ turn['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
)
_8B = ModelConfig(
    family="llada", d_model=4096, n_layers=32, n_heads=32, n_kv_heads=32, head_dim=128, d_ff=12288,
    vocab_size=126464, norm_eps=1e-5, rope_theta=500000.0, rope_fp32=True, qkv_bias=False,
    tied_head=False, logit_shift=0, mask_id=126336, end_ids=(126081, 126348), max_positions=8192,
)  # fmt: skip


def _read_config(fields: ConfigFields) -> ModelConfig:
    d_model, n_heads = fields.size("d_model"), fields.size("n_heads")
    if d_model % n_heads:
        raise RippleError(
            f"config.json in {fields.folder}: d_model {d_model} is no multiple of n_heads {n_heads}."
        )
    rows = "vocab_size" if fields.raw.get("embedding_size") is None else "embedding_size"
    return ModelConfig(
        family="llada",
        d_model=d_model,
        n_layers=fields.size("n_layers", most=MOST_LAYERS),
        n_heads=n_heads,
        n_kv_heads=fields.size("n_kv_heads", default=n_heads),
        head_dim=d_model // n_heads,
        d_ff=_d_ff(fields, d_model),
        vocab_size=fields.size(rows),
        norm_eps=fields.positive("rms_norm_eps"),
        rope_theta=fields.of_rotation("rope_theta"),
        rope_fp32=fields.flag("rope_full_precision", default=True),
        qkv_bias=fields.flag("include_qkv_bias", default=False),
        tied_head=fields.flag("weight_tying", default=False),
        logit_shift=0,
        mask_id=fields.integer("mask_token_id"),
        end_ids=fields.end_ids(_END_OF_TURN),
        max_positions=fields.size("max_sequence_length", most=MOST_POSITIONS),
    )


def _d_ff(fields: ConfigFields, d_model: int) -> int:
    """Return the width of the feed-forward part: given, or a multiple of the model's."""
    if fields.raw.get("mlp_hidden_size") is not None:
        return fields.size("mlp_hidden_size")
    d_ff = fields.positive("mlp_ratio") * d_model
    if not 1 <= d_ff <= MOST:
        raise fields.malformed("mlp_ratio", f"between 1 / d_model and {MOST} / d_model")
    return int(d_ff)


def _empty_weights(
    config: ModelConfig, device: torch.device, dtype: torch.dtype
) -> tuple[Weights, dict[str, torch.Tensor]]:
    return empty_weights(config, NAMES, device, dtype)


def _configs(sizes: CheckpointSizes, ids: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, Any]]:
    eos = ids["<|endoftext|>"]
    config = {
        "activation_type": "silu",
        "alibi": False,
        "alibi_bias_max": 8.0,
        "architectures": ["LLaDAModelLM"],
        "attention_dropout": 0.0,
        "attention_layer_norm": False,
        "attention_layer_norm_with_affine": True,
        "auto_map": {
            "AutoConfig": "configuration_llada.LLaDAConfig",
            "AutoModel": "modeling_llada.LLaDAModelLM",
            "AutoModelForCausalLM": "modeling_llada.LLaDAModelLM",
        },
        "bias_for_layer_norm": False,
        "block_group_size": 1,
        "block_type": "llama",
        "d_model": sizes.d_model,
        "embedding_dropout": 0.0,
        "embedding_size": sizes.vocab_size,
        "eos_token_id": eos,
        "flash_attention": False,
        "include_bias": False,
        "include_qkv_bias": False,
        "init_cutoff_factor": None,
        "init_device": "meta",
        "init_fn": "mitchell",
        "init_std": 0.02,
        "input_emb_norm": False,
        "layer_norm_type": "rms",
        "layer_norm_with_affine": True,
        "mask_token_id": ids["<|mdm_mask|>"],
        "max_sequence_length": sizes.max_positions,
        "mlp_hidden_size": sizes.d_ff,
        "mlp_ratio": 4,
        "model_type": "llada",
        "multi_query_attention": None,
        "n_heads": sizes.n_heads,
        "n_kv_heads": sizes.n_kv_heads,
        "n_layers": sizes.n_layers,
        "pad_token_id": eos,
        "precision": "amp_bf16",
        "residual_dropout": 0.0,
        "rms_norm_eps": 1e-05,
        "rope": True,
        "rope_full_precision": True,
        "rope_theta": 500000.0,
        "scale_logits": False,
        "use_cache": False,
        "vocab_size": sizes.vocab_size,
        "weight_tying": sizes.tied_head,
    }
    return config, {"bos_token_id": ids["<|startoftext|>"], "eos_token_id": eos}


def _write_tokenizer(folder: Path, vocabulary: ByteVocabulary, ids: Mapping[str, int]) -> None:
    """Write one fast tokenizer.json and its settings; the mask is an added token but not `mask_token`."""
    settings = {
        "add_bos_token": False,
        "add_eos_token": False,
        "added_tokens_decoder": added_tokens_decoder(ids),
        "bos_token": "<|startoftext|>",
        "chat_template": _CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    write_json(folder / "tokenizer.json", tokenizer_json(vocabulary, ids))
    write_json(folder / "tokenizer_config.json", settings)


FAMILY = Family(
    name="llada",
    architectures=("LLaDAModelLM",),
    about="row i predicts token i; rotary positions in fp32",
    hub_ids=("GSAI-ML/LLaDA-8B-Instruct", "GSAI-ML/LLaDA-1.5", "GSAI-ML/iLLaDA-8B"),
    shapes={"llada-8b": _8B},
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
        gains={"q_proj.weight": 3.0, "k_proj.weight": 3.0, "attn_out.weight": 2.0},
    ),
)
