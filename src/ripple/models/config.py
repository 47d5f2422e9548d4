"""Reads a released `config.json` into a `ModelConfig`, and refuses what this package does not implement."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ripple.errors import RippleError, unknown
from ripple.models.records import ModelConfig

# Per field, the values that the forward pass implements. None stands for null or absent, and is listed only
# where the released configuration class then falls back to a value that is implemented too.
_LLADA_ALLOWED: dict[str, tuple[object, ...]] = {
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
    "quantization_config": (None,),
    "rope": (True,),
    "rope_full_precision": (True, False, None),
    "scale_logits": (False, None),
    "weight_tying": (True, False),
}
_DREAM_ALLOWED: dict[str, tuple[object, ...]] = {
    "attention_bias": (True, False, None),
    "hidden_act": ("silu",),
    "quantization_config": (None,),
    "rope_scaling": (None,),
    "tie_word_embeddings": (True, False, None),
    "use_mrope": (False, None),
    "use_sliding_window": (False, None),
}
_END_OF_TURN = {"llada": "<|eot_id|>", "dream": "<|im_end|>"}


class _Fields:
    """A parsed config.json, with accessors that name the field in every complaint."""

    def __init__(self, folder: Path, raw: dict[str, Any]) -> None:
        self.folder = folder
        self.raw = raw

    def check(self, allowed: dict[str, tuple[object, ...]]) -> None:
        """Raise for the first field whose value is not implemented."""
        for field, values in allowed.items():
            value = self.raw.get(field)
            if value in values:
                continue
            if field not in self.raw:
                raise self._missing(field)
            known = " or ".join(json.dumps(v) for v in values if v is not None) or "null"
            raise RippleError(
                f"config.json in {self.folder} says {field} = {json.dumps(value)}, which is not "
                f"implemented; supported: {known}."
            )

    def integer(self, field: str, default: int | None = None) -> int:
        """Return a whole number; null and absent mean `default`, and without one they are an error."""
        value = self.raw.get(field)
        value = default if value is None else value
        if value is None:
            raise self._missing(field)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._malformed(field, value, "a whole number")
        return value

    def size(self, field: str, default: int | None = None) -> int:
        """Return a whole number that counts something, so at least 1."""
        value = self.integer(field, default)
        if value == 0:
            raise self._malformed(field, value, "at least 1")
        return value

    def positive(self, field: str) -> float:
        """Return a number above 0."""
        value = self.raw.get(field)
        if value is None:
            raise self._missing(field)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self._malformed(field, value, "a number above 0")
        return float(value)

    def flag(self, field: str, default: bool) -> bool:
        """Return a flag that `check` has already found to be true, false, null or absent."""
        value = self.raw.get(field)
        return default if value is None else bool(value)

    def _missing(self, field: str) -> RippleError:
        return RippleError(f"config.json in {self.folder} lacks the field {field!r}.")

    def _malformed(self, field: str, value: object, wanted: str) -> RippleError:
        return RippleError(
            f"config.json in {self.folder} says {field} = {json.dumps(value)}, but it must be {wanted}."
        )


def _llada(fields: _Fields) -> ModelConfig:
    fields.check(_LLADA_ALLOWED)
    d_model, n_heads = fields.size("d_model"), fields.size("n_heads")
    if fields.raw.get("mlp_hidden_size") is None:
        d_ff = int(fields.positive("mlp_ratio") * d_model)
    else:
        d_ff = fields.size("mlp_hidden_size")
    rows = "vocab_size" if fields.raw.get("embedding_size") is None else "embedding_size"
    return ModelConfig(
        family="llada",
        d_model=d_model,
        n_layers=fields.size("n_layers"),
        n_heads=n_heads,
        n_kv_heads=fields.size("n_kv_heads", default=n_heads),
        head_dim=d_model // n_heads,
        d_ff=d_ff,
        vocab_size=fields.size(rows),
        norm_eps=fields.positive("rms_norm_eps"),
        rope_theta=fields.positive("rope_theta"),
        rope_fp32=fields.flag("rope_full_precision", default=True),
        qkv_bias=fields.flag("include_qkv_bias", default=False),
        tied_head=fields.flag("weight_tying", default=False),
        logit_shift=0,
        mask_id=fields.integer("mask_token_id"),
        end_ids=_end_ids("llada", fields),
        max_positions=fields.size("max_sequence_length"),
    )


def _dream(fields: _Fields) -> ModelConfig:
    fields.check(_DREAM_ALLOWED)
    d_model, n_heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    return ModelConfig(
        family="dream",
        d_model=d_model,
        n_layers=fields.size("num_hidden_layers"),
        n_heads=n_heads,
        n_kv_heads=fields.size("num_key_value_heads", default=n_heads),
        head_dim=fields.size("head_dim", default=d_model // n_heads),
        d_ff=fields.size("intermediate_size"),
        vocab_size=fields.size("vocab_size"),
        norm_eps=fields.positive("rms_norm_eps"),
        rope_theta=fields.positive("rope_theta"),
        rope_fp32=False,
        qkv_bias=fields.flag("attention_bias", default=True),
        tied_head=fields.flag("tie_word_embeddings", default=False),
        logit_shift=1,
        mask_id=fields.integer("mask_token_id"),
        end_ids=_end_ids("dream", fields),
        max_positions=fields.size("max_position_embeddings"),
    )


# Keyed by `architectures`, not by `model_type`: the mixture-of-experts LLaDA also calls itself "llada".
_READERS: dict[str, Callable[[_Fields], ModelConfig]] = {"LLaDAModelLM": _llada, "DreamModel": _dream}


def read_config(folder: Path) -> ModelConfig:
    """Return the model that `folder` holds, or raise for a field that is missing or not implemented."""
    folder = Path(folder)
    if not folder.is_dir():
        raise RippleError(f"Model folder {folder} does not exist.")
    raw = read_json(folder / "config.json")
    architectures = raw.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else architectures
    reader = _READERS.get(name) if isinstance(name, str) else None
    if reader is None:
        raise unknown("architecture", name, _READERS)
    config = reader(_Fields(folder, raw))
    _check_whole(folder, config)
    return config


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in `path`, or raise one sentence that names the file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RippleError(f"{path.parent} holds no {path.name}.") from None
    except (OSError, ValueError) as cause:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise RippleError(f"{path} cannot be read as JSON.") from cause
    if not isinstance(value, dict):
        raise RippleError(f"{path} must hold a JSON object.")
    return value


def _check_whole(folder: Path, config: ModelConfig) -> None:
    """Raise where fields that are fine one by one do not fit together."""
    where = f"config.json in {folder}"
    if config.head_dim * config.n_heads != config.d_model and config.family == "llada":
        raise RippleError(f"{where}: d_model {config.d_model} is no multiple of n_heads {config.n_heads}.")
    if config.head_dim % 2 or config.head_dim == 0:
        raise RippleError(f"{where}: rotary positions need an even head size, not {config.head_dim}.")
    if config.n_heads % config.n_kv_heads:
        raise RippleError(
            f"{where}: {config.n_heads} query heads are no multiple of {config.n_kv_heads} key heads."
        )
    for token_id in (config.mask_id, *config.end_ids):
        if token_id >= config.vocab_size:
            raise RippleError(f"{where}: token id {token_id} is outside the {config.vocab_size} rows.")


def _end_ids(family: str, fields: _Fields) -> tuple[int, ...]:
    """Return the ids that end a response: end-of-text first, then end-of-turn."""
    folder = fields.folder
    found = list(_as_ids(fields.raw.get("eos_token_id"), folder / "config.json"))
    generation = folder / "generation_config.json"
    if generation.is_file():
        found += _as_ids(read_json(generation).get("eos_token_id"), generation)
    if not found:
        raise RippleError(f"config.json in {folder} lacks the field 'eos_token_id'.")
    found += _special_id(folder, _END_OF_TURN[family])
    return tuple(dict.fromkeys(found))


def _as_ids(value: object, path: Path) -> Iterator[int]:
    """Yield the ids of an `eos_token_id`, which is a number, a list of numbers or null."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, int) and not isinstance(item, bool) and item >= 0:
            yield item
        elif item is not None:
            raise RippleError(f"{path} says eos_token_id = {json.dumps(value)}, but ids are whole numbers.")


def _special_id(folder: Path, token: str) -> list[int]:
    """Return [id] of an added token, or [] when no tokenizer file knows it; smallest file first."""
    if (path := folder / "tokenizer_config.json").is_file():
        added = read_json(path).get("added_tokens_decoder", {})
        found = [int(key) for key, entry in added.items() if entry.get("content") == token]
        if found:
            return found[:1]
    if (path := folder / "added_tokens.json").is_file():
        found = [int(value) for key, value in read_json(path).items() if key == token]
        if found:
            return found
    if (path := folder / "tokenizer.json").is_file():
        entries = read_json(path).get("added_tokens", [])
        return [int(entry["id"]) for entry in entries if entry.get("content") == token][:1]
    return []
