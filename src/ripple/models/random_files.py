"""The text files of a random checkpoint, as released: configs, a small tokenizer, its chat template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# In the order of their ids, which follow the ordinary tokens.
SPECIALS = {
    "llada": (
        "<|startoftext|>",
        "<|endoftext|>",
        "<|mdm_mask|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
    ),
    "dream": ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|beginoftext|>", "<|mask|>"),
}
_WORDS = "the and of to in is for with a number answer what step sum price each total more than how many"

# LLaDA's writes the first token itself and always ends with an open assistant turn, whatever it is asked.
_LLADA_TEMPLATE = (
    "{{ bos_token }}{% for turn in messages %}"
    "{{ '<|start_header_id|>' + turn['role'] + '<|end_header_id|>\n\n' }}"
    "{{ turn['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
)
# ChatML: a system line is supplied when the conversation has none.
_DREAM_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
    "{% for turn in messages %}"
    "{{ '<|im_start|>' + turn['role'] + '\n' + turn['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def llada_config(
    sizes: dict[str, int], tied: bool, ids: dict[str, int]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return config.json and generation_config.json with every key of the released files."""
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
        "d_model": sizes["d_model"],
        "embedding_dropout": 0.0,
        "embedding_size": sizes["vocab_size"],
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
        "max_sequence_length": sizes["max_positions"],
        "mlp_hidden_size": sizes["d_ff"],
        "mlp_ratio": 4,
        "model_type": "llada",
        "multi_query_attention": None,
        "n_heads": sizes["n_heads"],
        "n_kv_heads": sizes["n_kv_heads"],
        "n_layers": sizes["n_layers"],
        "pad_token_id": eos,
        "precision": "amp_bf16",
        "residual_dropout": 0.0,
        "rms_norm_eps": 1e-05,
        "rope": True,
        "rope_full_precision": True,
        "rope_theta": 500000.0,
        "scale_logits": False,
        "use_cache": False,
        "vocab_size": sizes["vocab_size"],
        "weight_tying": tied,
    }
    return config, {"bos_token_id": ids["<|startoftext|>"], "eos_token_id": eos}


def dream_config(
    sizes: dict[str, int], tied: bool, ids: dict[str, int]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return config.json and generation_config.json with every key of the released files."""
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
        "hidden_size": sizes["d_model"],
        "initializer_range": 0.02,
        "intermediate_size": sizes["d_ff"],
        "mask_token_id": ids["<|mask|>"],
        "max_position_embeddings": sizes["max_positions"],
        "max_window_layers": sizes["n_layers"],
        "model_type": "Dream",
        "num_attention_heads": sizes["n_heads"],
        "num_hidden_layers": sizes["n_layers"],
        "num_key_value_heads": sizes["n_kv_heads"],
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "tie_word_embeddings": tied,
        "use_cache": True,
        "use_mrope": False,
        "use_sliding_window": False,
        "vocab_size": sizes["vocab_size"],
    }
    sampling = {"alg": "origin", "alg_temp": None, "eps": 0.001, "mask_token_id": None, "steps": 512}
    return config | text_ids, sampling | text_ids | {"temperature": 0.0, "top_k": None, "top_p": None}


def vocabulary(room: int) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return a byte-level vocabulary of at most `room` tokens: 256 bytes, then prefixes of common words."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    # Byte-level files spell a byte as a visible character: itself, or else the next free one from 256 on.
    others = [byte for byte in range(256) if byte not in printable]
    vocab = {chr(byte): i for i, byte in enumerate(printable)}
    vocab |= {chr(256 + i): len(printable) + i for i in range(len(others))}
    space = chr(256 + others.index(32))
    merges = []
    for word in _WORDS.split():
        left = space
        for letter in word:
            if left + letter not in vocab and len(vocab) < room:
                vocab[left + letter] = len(vocab)
                merges.append((left, letter))
            left += letter
    return vocab, merges


def _added(ids: dict[str, int]) -> list[dict[str, Any]]:
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return [{"id": token_id, "content": token, **flags} for token, token_id in ids.items()]


def write_llada_tokenizer(
    folder: Path, vocab: dict[str, int], merges: list[tuple[str, str]], ids: dict[str, int]
) -> None:
    """Write one fast tokenizer.json and its settings; the mask is an added token but not `mask_token`."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": _added(ids),
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab, "merges": [" ".join(pair) for pair in merges]},
    }
    settings = {
        "add_bos_token": False,
        "add_eos_token": False,
        "added_tokens_decoder": {entry.pop("id"): entry for entry in _added(ids)},
        "bos_token": "<|startoftext|>",
        "chat_template": _LLADA_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    write_json(folder / "tokenizer.json", tokenizer)
    write_json(folder / "tokenizer_config.json", settings)


def write_dream_tokenizer(
    folder: Path, vocab: dict[str, int], merges: list[tuple[str, str]], ids: dict[str, int]
) -> None:
    """Write vocabulary, merges and settings; these name a Python class that is not there, as released."""
    settings = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {entry.pop("id"): entry for entry in _added(ids)},
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
        "bos_token": "<|beginoftext|>",
        "chat_template": _DREAM_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|endoftext|>",
        "mask_token": "<|mask|>",
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "DreamTokenizer",
    }
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    write_json(folder / "vocab.json", vocab)
    write_json(folder / "added_tokens.json", ids)
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_json(folder / "tokenizer_config.json", settings)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write one JSON object in a stable layout."""
    path.write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
