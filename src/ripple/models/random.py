"""Writes small random checkpoints in the released formats, so that tests and demos run without a download."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch

from ripple.errors import RippleError, unknown
from ripple.models import random_files as files
from ripple.models.checkpoint import empty_weights
from ripple.models.config import read_config
from ripple.models.records import Weights

_UNUSED_ROWS = 4  # at least; released checkpoints have such rows too
_FEWEST_ROWS = 16  # special tokens, unused rows and a few ordinary tokens
_SMALLEST_TOKENIZER = 300  # rows: 256 bytes, the special tokens, unused rows and a few words
# Over unit variance. Masked positions have equal inputs and differ by what they attend to, so attention that
# is nearly uniform, or small beside the input, would make them all predict alike.
_GAINS = {"q_proj.weight": 3.0, "k_proj.weight": 3.0, "attn_out.weight": 2.0, "o_proj.weight": 2.0}
_SAFETENSORS_NAMES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}


def write_random_checkpoint(
    folder: str | Path,
    family: str = "llada",
    *,
    seed: int = 0,
    d_model: int = 64,
    n_layers: int = 2,
    n_heads: int = 4,
    n_kv_heads: int | None = None,
    d_ff: int = 128,
    vocab_size: int = 128,
    max_positions: int = 1024,
    sharpness: float = 6.0,
    tied: bool = False,
    dtype: torch.dtype = torch.float32,
    max_shard_bytes: int | None = None,
) -> Path:
    """Write a random model with `vocab_size` rows into `folder` and return the folder.

    `sharpness` is the standard deviation of the logits: larger makes more positions confident. Below 300
    rows there is no room for a byte alphabet and no tokenizer is written: prompts are token ids then.
    """
    if family not in files.SPECIALS:
        raise unknown("family", family, files.SPECIALS)
    if vocab_size < _FEWEST_ROWS:
        raise RippleError(f"A random checkpoint needs at least {_FEWEST_ROWS} rows, not {vocab_size}.")
    if dtype not in _SAFETENSORS_NAMES:
        raise unknown("dtype", dtype, [str(known) for known in _SAFETENSORS_NAMES])
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    room = vocab_size - len(files.SPECIALS[family]) - _UNUSED_ROWS
    vocab, merges = files.vocabulary(room) if vocab_size >= _SMALLEST_TOKENIZER else ({}, [])
    ids = {token: (len(vocab) or room) + i for i, token in enumerate(files.SPECIALS[family])}
    sizes = {
        "d_model": d_model,
        "n_layers": n_layers,
        "n_heads": n_heads,
        "n_kv_heads": n_kv_heads or n_heads,
        "d_ff": d_ff,
        "vocab_size": vocab_size,
        "max_positions": max_positions,
    }
    shared = {"torch_dtype": str(dtype).removeprefix("torch."), "transformers_version": "4.46.2"}
    build = files.llada_config if family == "llada" else files.dream_config
    config, generation = build(sizes, tied, ids)
    files.write_json(folder / "config.json", config | shared)
    files.write_json(folder / "generation_config.json", generation)
    if vocab:
        write = files.write_llada_tokenizer if family == "llada" else files.write_dream_tokenizer
        write(folder, vocab, merges, ids)
    _write_tensors(folder, seed, sharpness, dtype, max_shard_bytes)
    return folder


def _write_tensors(
    folder: Path, seed: int, sharpness: float, dtype: torch.dtype, max_shard_bytes: int | None
) -> None:
    """Write the tensors that config.json implies, one in memory at a time."""
    config = read_config(folder)
    weights, shapes = empty_weights(config, torch.device("meta"), dtype)
    scales = {name: _scale(name, shape, weights, sharpness) for name, shape in shapes.items()}
    shards: list[dict[str, torch.Tensor]] = [{}]
    filled = 0  # bytes of the last shard
    for name, shape in shapes.items():
        if max_shard_bytes is not None and shards[-1] and filled + shape.nbytes > max_shard_bytes:
            shards.append({})
            filled = 0
        shards[-1][name] = shape
        filled += shape.nbytes
    names = ["model.safetensors"]
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)  # of an earlier checkpoint
    if max_shard_bytes is not None:
        names = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
        shard_of = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
        total = sum(shape.nbytes for shape in shapes.values())
        index = {"metadata": {"total_size": total}, "weight_map": shard_of}
        files.write_json(folder / "model.safetensors.index.json", index)
    generator = torch.Generator().manual_seed(seed)
    for name, shard in zip(names, shards, strict=True):
        _write_shard(folder / name, shard, scales, generator)


def _scale(name: str, shape: torch.Tensor, weights: Weights, sharpness: float) -> float:
    """Return the standard deviation of one tensor's values."""
    if shape is weights.head:
        return sharpness / math.sqrt(shape.shape[1])  # its input has unit variance
    if shape is weights.embed:
        return 1.0
    if shape.dim() == 1:
        return 0.1  # around 1 for norms, around 0 for biases
    gain = next((gain for ending, gain in _GAINS.items() if name.endswith(ending)), 1.0)
    return gain / math.sqrt(shape.shape[1])


def _write_shard(
    path: Path, shard: dict[str, torch.Tensor], scales: dict[str, float], generator: torch.Generator
) -> None:
    """Write one safetensors file: header length, header, then the tensors back to back."""
    header, offset = {}, 0
    for name, shape in shard.items():
        stop = offset + shape.nbytes
        header[name] = {
            "dtype": _SAFETENSORS_NAMES[shape.dtype],
            "shape": list(shape.shape),
            "data_offsets": [offset, stop],
        }
        offset = stop
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the format aligns the data to 8 bytes
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shard.items():
            values = torch.randn(shape.shape, generator=generator).mul_(scales[name])
            if shape.dim() == 1 and name.endswith("weight"):
                values += 1.0  # norms
            file.write(values.to(shape.dtype).view(torch.uint8).numpy().data)
