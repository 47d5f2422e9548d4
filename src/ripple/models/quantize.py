"""Writes the fp8 version of a checkpoint, one file of it in memory at a time."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from ripple.errors import RippleError
from ripple.models.checkpoint import checked_shards, new_staging, read_shard
from ripple.models.config import read_config
from ripple.models.dense import SCALE
from ripple.models.families import FAMILIES
from ripple.models.fp8 import FP8
from ripple.models.json_files import read_json, write_json
from ripple.models.quantization import FIELD, is_fp8_checkpoint, quantization_config
from ripple.models.safetensors_files import INDEX, write_safetensors

_COPIED = ("*.json", "*.txt", "*.model", "*.jinja", "filter.safetensors")  # the last is of a decoder


def write_fp8(source: Path, out: Path, block_size: int | None = None) -> None:
    """Write the checkpoint in `source` into a new folder `out`: matrices fp8, all else bf16 or as it was.

    The new config.json says the block size, which the old folder's name may have told.
    """
    if is_fp8_checkpoint(source):
        raise RippleError(f"{source} is fp8 already.")
    if out.exists():
        raise RippleError(f"{out} exists already; an fp8 checkpoint is written into a new folder.")
    config = read_config(source, block_size)
    shards = checked_shards(source, config, FP8)
    _, shapes = FAMILIES[config.family].empty_weights(config, torch.device("meta"), FP8)
    out.mkdir(parents=True)
    staging = new_staging(torch.device("cpu"))
    file_of: dict[str, str] = {}
    n_bytes = 0
    for path, stored in shards:
        names = [tensor.name for tensor in stored if tensor.name in shapes]
        names += [name + SCALE for name in names if name + SCALE in shapes]
        tensors = {name: torch.empty_like(shapes[name], device="cpu") for name in names}
        read_shard(path, stored, tensors, staging)
        write_safetensors(out / path.name, tensors, {"format": "pt"})
        file_of |= dict.fromkeys(names, path.name)
        n_bytes += sum(tensor.nbytes for tensor in tensors.values())
    written = {path.name for path, _ in shards} | {INDEX, "config.json"}
    if (source / INDEX).exists():
        write_json(out / INDEX, {"metadata": {"total_size": n_bytes}, "weight_map": file_of})
    said = read_json(source / "config.json")
    how = quantization_config(FAMILIES[config.family].format.head)
    blocks = {} if config.attention_block is None else {"block_size": config.attention_block}
    write_json(out / "config.json", said | blocks | {FIELD: how, "torch_dtype": "bfloat16"})
    for path in (path for pattern in _COPIED for path in source.glob(pattern)):
        if path.name not in written:
            shutil.copy(path, out / path.name)
