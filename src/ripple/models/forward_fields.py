"""Fields of config.json that change the forward pass of a Llama-like model, and their neutral values.

Every family refuses all others, unless its own table (`Family.implemented`) has the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import EllipsisType

# The values a field may have; in a list, those its entries may have; in a mapping, by name what an object may
# hold. None stands for null or absent.
Allowed = tuple[object, ...] | list[object] | Mapping[str, "Allowed"] | EllipsisType
ANY = ...  # the family reads the field, or knows that it has no effect

_NO = (False, None)
_NONE = (0, None)
_ONE = (1.0, None)
# Where transformers 5 writes what the rotary positions are made of, rope_theta among it.
PLAIN_ROTATION: dict[str, Allowed] = {"partial_rotary_factor": _ONE, "rope_type": ("default",)}

NEUTRAL: dict[str, Allowed] = {
    # attention
    "attention_bias": _NO,
    "attention_chunk_size": (None,),
    "attention_multiplier": (None,),
    "attn_logit_softcapping": (None,),
    "clip_qkv": (None,),
    "layer_types": ["full_attention", None],
    "no_rope_layers": (None,),
    "qk_layernorm": _NO,
    "qk_norm": _NO,
    "qkv_bias": _NO,
    "query_pre_attn_scalar": (None,),
    "sliding_window": (None,),
    "use_qk_norm": _NO,
    "use_qkv_bias": _NO,
    "use_sliding_window": _NO,
    # positions
    "partial_rotary_factor": _ONE,
    "rope_interleave": _NO,
    "rope_parameters": PLAIN_ROTATION,
    "rope_scaling": (None,),
    "use_mrope": _NO,
    # feed-forward part
    "mlp_bias": _NO,
    "n_routed_experts": _NONE,
    "num_experts": _NONE,
    "num_local_experts": _NONE,
    "use_bias": _NO,
    # layers and what lies around them
    "embedding_multiplier": _ONE,
    "final_logit_softcapping": (None,),
    "logits_scaling": _ONE,
    "num_nextn_predict_layers": _NONE,
    "parallel_attn": _NO,
    "residual_multiplier": _ONE,
    "use_parallel_residual": _NO,
    # how tensors are stored
    "quantization_config": (None,),
}
