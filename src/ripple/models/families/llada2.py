"""LLaDA2.0-mini and LLaDA2.1-mini: blocks of 32, experts behind the first layer, half of a head rotated."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ripple.models.base import ExpertsConfig, Model, ModelConfig
from ripple.models.byte_vocabulary import ByteVocabulary, added_tokens_decoder, tokenizer_json
from ripple.models.config_fields import MOST_LAYERS, MOST_POSITIONS, ConfigFields
from ripple.models.families.family import CheckpointSizes, Family, ReleasedFormat
from ripple.models.forward_fields import ANY, Allowed
from ripple.models.json_files import write_json

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ripple.models.dense import LayerWeights, Weights

_IMPLEMENTED: dict[str, Allowed] = {
    "expert_capacity": (None,),  # LLaDA2.2 routes a whole block at once,
    "num_experts_per_block": (None,),  # to so many experts
    "hidden_act": ("silu",),
    "model_type": ("llada2_moe", None),
    "moe_router_enable_expert_bias": (True,),
    "moe_shared_expert_intermediate_size": (None,),  # a shared expert is as wide as the others
    "norm_head": (False, None),
    "norm_softmax": (False, None),
    "norm_topk_prob": (True,),
    "num_experts": ANY,
    "partial_rotary_factor": ANY,
    "rope_parameters": {"rope_type": ("default",)},
    "router_dtype": ("fp32",),
    "score_function": ("sigmoid",),
    "sliding_window": ANY,  # of layers that use_sliding_window or layer_types give one
    "tie_word_embeddings": (True, False, None),
    "use_bias": (False,),
    "use_qk_norm": (True, None),
}
_BLOCK = 32  # config.json does not say
_END_OF_TURN, _MASK = "<|role_end|>", "<|mask|>"
_SPECIAL_TOKENS = ("<|startoftext|>", "<|endoftext|>", "<role>", "</role>", _MASK, _END_OF_TURN)
_CHAT_TEMPLATE = (
    "{{ '<role>SYSTEM</role>' }}"
    "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] + '\n' }}{% endif %}"
    "{{ 'detailed thinking off<|role_end|>' }}"
    "{% for turn in messages %}{% if turn['role'] != 'system' %}"
    "{{ '<role>' + ('HUMAN' if turn['role'] == 'user' else 'ASSISTANT') + '</role>' }}"
    "{{ turn['content'] + '<|role_end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<role>ASSISTANT</role>' }}{% endif %}"
)

_MINI = ExpertsConfig(
    family="llada2", d_model=2048, n_layers=20, n_heads=16, n_kv_heads=4, head_dim=128, d_ff=5120,
    vocab_size=157184, norm_eps=1e-6, rope_theta=600000.0, rope_fp32=False, qkv_bias=False, tied_head=False,
    logit_shift=0, mask_id=156895, end_ids=(156892, 156900), max_positions=32768, attention_block=_BLOCK,
    qk_norm=True, rotary_dim=64, n_dense=1, n_experts=256, n_chosen=8, expert_ff=512, n_shared=1, n_groups=8,
    n_groups_chosen=4, routed_scale=2.5,
)  # fmt: skip


def _read_config(fields: ConfigFields) -> ModelConfig:
    d_model, n_heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    n_layers = fields.size("num_hidden_layers", most=MOST_LAYERS)
    head_dim = fields.size("head_dim", default=d_model // n_heads)
    n_experts, n_chosen = fields.size("num_experts"), fields.size("num_experts_per_tok")
    n_groups, n_groups_chosen = fields.size("n_group"), fields.size("topk_group")
    if n_experts % n_groups or n_experts // n_groups < 2:
        raise fields.malformed("n_group", "a divisor of num_experts that leaves at least 2 to a group")
    if n_groups_chosen > n_groups or n_chosen > n_groups_chosen * (n_experts // n_groups):
        raise fields.malformed("topk_group", "at most n_group, and groups enough for num_experts_per_tok")
    rotary_dim = int(head_dim * min(fields.of_rotation("partial_rotary_factor", default=0.5), 1.0))
    if fields.integer("rotary_dim", default=rotary_dim) != rotary_dim:
        raise fields.malformed("rotary_dim", f"{rotary_dim}, as partial_rotary_factor says")
    return ExpertsConfig(
        family="llada2",
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=fields.size("num_key_value_heads", default=n_heads),
        head_dim=head_dim,
        d_ff=fields.size("intermediate_size"),
        vocab_size=fields.size("vocab_size"),
        norm_eps=fields.positive("rms_norm_eps"),
        rope_theta=fields.of_rotation("rope_theta"),
        rope_fp32=False,
        qkv_bias=False,
        tied_head=fields.flag("tie_word_embeddings", default=False),
        logit_shift=0,
        mask_id=fields.mask_id(_MASK),
        end_ids=fields.end_ids(_END_OF_TURN, otherwise="pad_token_id"),
        max_positions=fields.size("max_position_embeddings", most=MOST_POSITIONS),
        attention_block=fields.block_size(_BLOCK),
        qk_norm=True,
        rotary_dim=rotary_dim,
        n_dense=fields.integer("first_k_dense_replace", default=0, most=n_layers),
        n_experts=n_experts,
        n_chosen=n_chosen,
        expert_ff=fields.size("moe_intermediate_size"),
        n_shared=fields.size("num_shared_experts"),
        n_groups=n_groups,
        n_groups_chosen=n_groups_chosen,
        routed_scale=fields.positive("routed_scaling_factor"),
    )


def _empty_weights(
    config: ExpertsConfig, device: torch.device, dtype: torch.dtype
) -> tuple[Weights, dict[str, Tensor]]:
    import torch

    from ripple.models.dense import Weights

    def new(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    d = config.d_model
    embed, norm = new(config.vocab_size, d), new(d)
    places = {"model.word_embeddings.weight": embed, "model.norm.weight": norm}
    layers = [_empty_layer(config, number, places, new) for number in range(config.n_layers)]
    head = embed
    if not config.tied_head:
        places["lm_head.weight"] = head = new(config.vocab_size, d)
    return Weights(embed=embed, layers=layers, norm=norm, head=head), places


def _empty_layer(config: ExpertsConfig, number: int, places: dict[str, Tensor], new: Any) -> LayerWeights:
    """Return one block's tensors and note which names they are filled from."""
    import torch

    from ripple.models.dense import LayerWeights
    from ripple.models.experts import ExpertLayer

    d, q_rows, kv_rows = config.d_model, *(n * config.head_dim for n in (config.n_heads, config.n_kv_heads))
    at, is_dense = f"model.layers.{number}", number < config.n_dense
    d_ff = config.d_ff if is_dense else config.n_shared * config.expert_ff
    fields = {
        "attn_norm": new(d), "qkv": new(q_rows + 2 * kv_rows, d), "qkv_bias": None, "out": new(d, q_rows),
        "mlp_norm": new(d), "gate_up": new(2 * d_ff, d), "down": new(d, d_ff),
        "q_norm": new(config.head_dim), "k_norm": new(config.head_dim),
    }  # fmt: skip
    names = {
        "input_layernorm": "attn_norm", "post_attention_layernorm": "mlp_norm",
        "attention.query_key_value": "qkv", "attention.dense": "out", "attention.query_layernorm": "q_norm",
        "attention.key_layernorm": "k_norm",
    }  # fmt: skip
    places |= {f"{at}.{name}.weight": fields[role] for name, role in names.items()}
    mlp = f"{at}.mlp" if is_dense else f"{at}.mlp.shared_experts"
    _place_gated(places, mlp, fields["gate_up"], fields["down"])
    if is_dense:
        return LayerWeights(**fields)
    e, f = config.n_experts, config.expert_ff
    layer = ExpertLayer(
        **fields,
        router=new(e, d, dtype=torch.float32),
        router_bias=new(e, dtype=torch.float32),
        expert_gate_up=new(e, 2 * f, d),
        expert_down=new(e, d, f),
    )
    places[f"{at}.mlp.gate.weight"], places[f"{at}.mlp.gate.expert_bias"] = layer.router, layer.router_bias
    for i in range(e):
        _place_gated(places, f"{at}.mlp.experts.{i}", layer.expert_gate_up[i], layer.expert_down[i])
    return layer


def _place_gated(places: dict[str, Tensor], at: str, gate_up: Tensor, down: Tensor) -> None:
    places[f"{at}.gate_proj.weight"], places[f"{at}.up_proj.weight"] = gate_up.chunk(2)
    places[f"{at}.down_proj.weight"] = down


def _network(config: ExpertsConfig, weights: Weights, fused: bool) -> Model:
    from ripple.models.experts import ExpertTransformer

    d, f = config.d_model, config.expert_ff
    suits = d % 128 == 0 and f % 128 == 0 and config.head_dim.bit_count() == 1  # whole tiles
    if fused and suits and weights.embed.device.type == "cuda" and importlib.util.find_spec("triton"):
        from ripple.models.gpu.fast_experts import FastExpertTransformer

        return FastExpertTransformer(config, weights)
    return ExpertTransformer(config, weights, fused)


def _configs(sizes: CheckpointSizes, ids: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, Any]]:
    config = {
        "architectures": ["LLaDA2MoeModelLM"],
        "attention_dropout": 0.0,
        "auto_map": {
            "AutoConfig": "configuration_llada2_moe.LLaDA2MoeConfig",
            "AutoModel": "modeling_llada2_moe.LLaDA2MoeModel",
            "AutoModelForCausalLM": "modeling_llada2_moe.LLaDA2MoeModelLM",
        },
        "embedding_dropout": 0.0,
        "first_k_dense_replace": 1,
        "head_dim": sizes.head_dim,
        "hidden_act": "silu",
        "hidden_size": sizes.d_model,
        "initializer_range": 0.02,
        "intermediate_size": sizes.d_ff,
        "max_position_embeddings": sizes.max_positions,
        "max_window_layers": sizes.n_layers,
        "model_type": "llada2_moe",
        "moe_intermediate_size": max(16, sizes.d_ff // 8),
        "moe_router_enable_expert_bias": True,
        "n_group": 4,
        "norm_head": False,
        "norm_softmax": False,
        "norm_topk_prob": True,
        "num_attention_heads": sizes.n_heads,
        "num_experts": 16,
        "num_experts_per_tok": 3,
        "num_hidden_layers": sizes.n_layers,
        "num_key_value_heads": sizes.n_kv_heads,
        "num_shared_experts": 1,
        "output_router_logits": False,
        "pad_token_id": ids["<|endoftext|>"],
        "partial_rotary_factor": 0.5,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 600000.0,
        "routed_scaling_factor": 2.5,
        "router_dtype": "fp32",
        "score_function": "sigmoid",
        "sliding_window": 4096,
        "tie_word_embeddings": sizes.tied_head,
        "topk_group": 2,
        "use_bias": False,
        "use_cache": True,
        "use_qkv_bias": False,
        "use_sliding_window": False,
        "vocab_size": sizes.vocab_size,
    }
    # Released folders name neither; a folder without a tokenizer has to.
    return config | {"block_size": sizes.block_size, "mask_token_id": ids[_MASK]}, {}


def _write_tokenizer(folder: Path, vocabulary: ByteVocabulary, ids: Mapping[str, int]) -> None:
    settings = {
        "add_bos_token": False,
        "added_tokens_decoder": added_tokens_decoder(ids),
        "bos_token": "<|startoftext|>",
        "chat_template": _CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|endoftext|>",
        "mask_token": _MASK,
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    write_json(folder / "tokenizer.json", tokenizer_json(vocabulary, ids))
    write_json(folder / "tokenizer_config.json", settings)


FAMILY = Family(
    name="llada2",
    architectures=("LLaDA2MoeModelLM",),
    about="blocks of 32; experts; queries and keys normalised, half of each rotated",
    hub_ids=("inclusionAI/LLaDA2.0-mini", "inclusionAI/LLaDA2.1-mini"),
    shapes={"llada2-mini": _MINI},
    tokenizer_class="PreTrainedTokenizerFast",
    implemented=_IMPLEMENTED,
    read_config=_read_config,
    empty_weights=_empty_weights,  # type: ignore[arg-type]
    unread=re.compile(r"lm_head\.weight$|.*\.rotary_emb\.inv_freq$"),
    network=_network,  # type: ignore[arg-type]
    format=ReleasedFormat(
        special_tokens=_SPECIAL_TOKENS,
        configs=_configs,
        write_tokenizer=_write_tokenizer,
        embed="model.word_embeddings.weight",
        head="lm_head.weight",
        gains={"query_layernorm.weight": 2.0, "key_layernorm.weight": 2.0, "attention.dense.weight": 2.0},
    ),
    attends_by_block=True,
)
