"""The oracle's model: transformers' own Llama, Qwen2, Qwen3 and Ministral, run without a causal mask.

It reads the tensors of a checkpoint folder in released format and shares no code with `ripple.models`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import (
    Glm4MoeConfig,
    Glm4MoeForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Ministral3Config,
    Ministral3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

# LLaDA's leaf names inside a block -> Llama's. The head and the down projection are both called ff_out.
_LLADA_BLOCK = {
    "attn_norm": "input_layernorm",
    "ff_norm": "post_attention_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}
_SDAR_FIELDS = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "rope_theta",
    "tie_word_embeddings",
)  # fmt: skip
_LLADA2_PARTS = {
    "word_embeddings": "embed_tokens",
    "attention.dense": "self_attn.o_proj",
    "attention.query_layernorm": "self_attn.q_norm",
    "attention.key_layernorm": "self_attn.k_norm",
    "gate.expert_bias": "gate.e_score_correction_bias",
}
_LLADA_TOP = {"wte": "model.embed_tokens", "ln_f": "model.norm", "ff_out": "lm_head"}


def _llama_name(name: str) -> str:
    """The Llama name of a LLaDA tensor."""
    block = re.fullmatch(r"model\.transformer\.blocks\.(\d+)\.(\w+)\.(weight|bias)", name)
    if block:
        return f"model.layers.{block[1]}.{_LLADA_BLOCK[block[2]]}.{block[3]}"
    top = re.fullmatch(r"model\.transformer\.(\w+)\.weight", name)
    if top:
        return f"{_LLADA_TOP[top[1]]}.weight"
    raise KeyError(name)


def _ministral_name(name: str) -> str:
    """The Ministral name of a Nemotron-Labs-Diffusion tensor."""
    return name.replace("encoder.", "model.", 1).replace("diffusion_head", "lm_head", 1)


def _glm_tensors(tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """LLaDA2's tensors under the names of GLM-4's mixture of experts, which stacks the experts."""
    heads, kv_heads, d = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    out: dict[str, torch.Tensor] = {}
    experts: dict[str, dict[int, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if name.endswith("query_key_value.weight"):
            parts = tensor.split([heads * d, kv_heads * d, kv_heads * d])
            for role, part in zip("qkv", parts, strict=True):
                out[name.replace("attention.query_key_value", f"self_attn.{role}_proj")] = part
        elif expert := re.fullmatch(r"(.*\.experts)\.(\d+)\.(\w+)_proj\.weight", name):
            experts.setdefault(f"{expert[1]} {expert[3]}", {})[int(expert[2])] = tensor
        else:
            for ours, theirs in _LLADA2_PARTS.items():
                name = name.replace(ours, theirs)
            out[name] = tensor
    for at in {key.split()[0] for key in experts}:
        gate, up, down = (experts[f"{at} {role}"] for role in ("gate", "up", "down"))
        out[f"{at}.gate_up_proj"] = torch.stack([torch.cat([gate[i], up[i]]) for i in range(len(gate))])
        out[f"{at}.down_proj"] = torch.stack([down[i] for i in range(len(down))])
    return out


class ReferenceModel:
    """One checkpoint folder behind three calls: `logits`, `shadow`, `masked`."""

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        config = json.loads((folder / "config.json").read_text())
        tensors: dict[str, torch.Tensor] = {}
        for file in sorted(folder.glob("model*.safetensors")):
            tensors.update(load_file(file))
        tensors = {name: tensor.float() for name, tensor in tensors.items()}

        self.mask_id = int(config["mask_token_id"])
        architecture = config["architectures"][0]
        if architecture == "LLaDAModelLM":
            self.shift = 0
            tensors = {_llama_name(name): tensor for name, tensor in tensors.items()}
            model_config = LlamaConfig(
                vocab_size=config.get("embedding_size") or config["vocab_size"],
                hidden_size=config["d_model"],
                intermediate_size=config["mlp_hidden_size"],
                num_hidden_layers=config["n_layers"],
                num_attention_heads=config["n_heads"],
                num_key_value_heads=config.get("n_kv_heads") or config["n_heads"],
                max_position_embeddings=config["max_sequence_length"],
                rms_norm_eps=config["rms_norm_eps"],
                rope_theta=config["rope_theta"],
                tie_word_embeddings=bool(config.get("weight_tying", False)),
                is_causal=False,
            )
            model_class = LlamaForCausalLM
        elif architecture == "DreamModel":
            self.shift = 1
            model_config = Qwen2Config(
                vocab_size=config["vocab_size"],
                hidden_size=config["hidden_size"],
                intermediate_size=config["intermediate_size"],
                num_hidden_layers=config["num_hidden_layers"],
                num_attention_heads=config["num_attention_heads"],
                num_key_value_heads=config["num_key_value_heads"],
                max_position_embeddings=config["max_position_embeddings"],
                rms_norm_eps=config["rms_norm_eps"],
                rope_theta=config["rope_theta"],
                tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
                is_causal=False,
            )
            model_class = Qwen2ForCausalLM
        elif architecture == "SDARForCausalLM":
            self.shift = 0
            model_config = Qwen3Config(
                **{name: config[name] for name in _SDAR_FIELDS}, attention_bias=False, is_causal=False
            )
            model_class = Qwen3ForCausalLM
        elif architecture == "NemotronLabsDiffusionModel":
            self.shift = 0
            tensors = {_ministral_name(name): tensor for name, tensor in tensors.items()}
            names = (*_SDAR_FIELDS, "rope_parameters")
            model_config = Ministral3Config(
                **{name: config[name] for name in names if name != "rope_theta"}, sliding_window=None
            )
            model_class = Ministral3ForCausalLM
        elif architecture == "LLaDA2MoeModelLM":
            self.shift = 0
            tensors = _glm_tensors(tensors, config)
            names = set(_SDAR_FIELDS) - {"rope_theta"} | {"moe_intermediate_size", "num_experts_per_tok"}
            names |= {
                "n_group",
                "topk_group",
                "routed_scaling_factor",
                "norm_topk_prob",
                "first_k_dense_replace",
            }
            model_config = Glm4MoeConfig(
                **{name: config[name] for name in names},
                n_routed_experts=config["num_experts"],
                n_shared_experts=config["num_shared_experts"],
                rope_parameters={
                    "rope_type": "default",
                    "rope_theta": config["rope_theta"],
                    "partial_rotary_factor": config["partial_rotary_factor"],
                },
                use_qk_norm=True,
                num_mtp_layers=0,
                attention_bias=False,
            )
            model_class = Glm4MoeForCausalLM
        else:
            raise ValueError(f"no reference model for {architecture}")

        self.vocab_size = int(model_config.vocab_size)
        self._known: dict[tuple[int, ...], np.ndarray] = {}
        self._model = model_class._from_config(model_config, attn_implementation="sdpa").float().eval()
        missing, unexpected = self._model.load_state_dict(tensors, strict=False)
        tied = {"lm_head.weight"} if model_config.tie_word_embeddings else set()
        if unexpected or set(missing) - tied:
            raise KeyError(f"missing {missing}, unexpected {unexpected}")

    @torch.no_grad()
    def masked(self, ids: list[int], position_ids: list[int], mask: np.ndarray) -> np.ndarray:
        """Raw output rows [n, V], shift not undone; `mask` [n, n] is True where a row may attend."""
        out = self._model(
            input_ids=torch.tensor([ids]),
            position_ids=torch.tensor([position_ids]),
            attention_mask=torch.from_numpy(mask)[None, None],
            use_cache=False,
        )
        return out.logits[0].numpy()

    def logits(self, ids: list[int]) -> np.ndarray:
        """Logits [N, V] of a full bidirectional forward, row i about position i; kept, since runs overlap."""
        if tuple(ids) not in self._known:
            self._known[tuple(ids)] = self._logits(ids)
        return self._known[tuple(ids)].copy()

    def _logits(self, ids: list[int]) -> np.ndarray:
        n = len(ids)
        rows = self.masked(ids, list(range(n)), np.ones((n, n), dtype=bool))
        if self.shift:
            rows = np.concatenate([rows[:1], rows[:-1]])  # row i - 1 is about position i; row 0 is duplicated
        return rows

    def shadow(self, ids: list[int], start: int, stop: int) -> np.ndarray:
        """WINO's leave-one-out logits [stop - start, V] about each position of the block.

        The canvas is followed by one mask token per block position. The canvas does not see them. Each of
        them sees the others and the whole canvas except the token it has to predict. For a shifted model the
        row that predicts position i sits at position i - 1.
        """
        n, size = len(ids), stop - start
        if start - self.shift < 0:
            raise ValueError("a shifted model needs a token before the block")
        packed = list(ids) + [self.mask_id] * size
        position_ids = list(range(n)) + [i - self.shift for i in range(start, stop)]
        mask = np.zeros((n + size, n + size), dtype=bool)
        for query in range(n + size):
            for key in range(n + size):
                if query < n:
                    mask[query, key] = key < n
                else:
                    predicted = start + (query - n)
                    mask[query, key] = key != predicted
        return self.masked(packed, position_ids, mask)[n:]
