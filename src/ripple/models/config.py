"""Reads a released `config.json` into a `ModelConfig`, and refuses what its family does not implement."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ripple.errors import RippleError, unknown
from ripple.models.base import ModelConfig
from ripple.models.config_fields import MOST, ConfigFields
from ripple.models.families import FAMILIES, Family
from ripple.models.forward_fields import NEUTRAL
from ripple.models.json_files import read_json, shown
from ripple.models.quantization import FIELD, says_fp8


def read_config(folder: Path, block_size: int | None = None) -> ModelConfig:
    """Return the model that `folder` holds, or raise for a field that is missing or not implemented.

    `block_size` is for models that attend block by block; by default it is what the folder says.
    """
    folder = Path(folder)
    raw = _read(folder)
    family = _family(raw)
    fields = ConfigFields(folder, raw, block_size)
    fields.check({**NEUTRAL, **family.implemented})
    config = family.read_config(fields)
    if block_size is not None and config.attention_block is None:
        raise RippleError(
            f"block_size is for models that attend block by block, which {raw['architectures'][0]} does not."
        )
    _check_whole(f"config.json in {folder}", config)
    return config


def family_of(folder: Path) -> Family:
    """Return the family of the model in `folder`, whose other fields are not looked at."""
    return _family(_read(Path(folder)))


def _read(folder: Path) -> dict[str, Any]:
    if not os.path.isdir(folder):
        raise RippleError(f"Model folder {folder} does not exist.")
    raw = read_json(folder / "config.json")
    if says_fp8(raw):  # read here; any other kind is refused with the family's other fields
        raw[FIELD] = None
    return raw


def _family(raw: Mapping[str, Any]) -> Family:
    """Return the family of a parsed config.json."""
    architectures = raw.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else architectures
    # By `architectures`, not by `model_type`: the mixture-of-experts LLaDA also calls itself "llada".
    family_named = {name: family for family in FAMILIES.values() for name in family.architectures}
    family = family_named.get(name) if isinstance(name, str) else None
    if family is None:
        raise unknown("architecture", shown(name).strip('"'), family_named)
    return family


def _check_whole(where: str, config: ModelConfig) -> None:
    """Raise where fields that are fine one by one do not fit together."""
    if config.head_dim % 2 or config.head_dim == 0:
        raise RippleError(f"{where}: rotary positions need an even head size, not {config.head_dim}.")
    if config.rotary_dim is not None and (config.rotary_dim % 2 or config.rotary_dim == 0):
        raise RippleError(f"{where}: an even part of a head is rotated, not {config.rotary_dim}.")
    if config.n_heads % config.n_kv_heads:
        raise RippleError(
            f"{where}: {config.n_heads} query heads are no multiple of {config.n_kv_heads} key heads."
        )
    if config.n_heads * config.head_dim > MOST:
        raise RippleError(f"{where}: {config.n_heads} heads of {config.head_dim} are wider than {MOST}.")
    for token_id in (config.mask_id, *config.end_ids):
        if not 0 <= token_id < config.vocab_size:
            raise RippleError(f"{where}: token id {shown(token_id)} is outside the {config.vocab_size} rows.")
