"""Writes small random checkpoints in the released formats, so that tests and demos run without a download."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from ripple.errors import RippleError, unknown
from ripple.models.base import ModelConfig
from ripple.models.byte_vocabulary import ByteVocabulary, byte_vocabulary
from ripple.models.config import read_config
from ripple.models.families import FAMILIES, CheckpointSizes
from ripple.models.json_files import write_json
from ripple.models.safetensors_files import write_safetensors

_UNUSED_ROWS = 4  # at least; released checkpoints have such rows too
_FEWEST_ROWS = 16  # special tokens, unused rows and a few ordinary tokens
_SMALLEST_TOKENIZER = 300  # rows: 256 bytes, the special tokens, unused rows and a few words
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


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
    head_dim: int | None = None,
    block_size: int = 4,
    dtype: torch.dtype = torch.float32,
    max_shard_bytes: int | None = None,
) -> Path:
    """Write a random model with `vocab_size` rows into `folder` and return the folder.

    `sharpness` is the standard deviation of the logits: larger makes more positions confident. Below 300
    rows there is no room for a byte alphabet and no tokenizer is written: prompts are token ids then.
    `head_dim` and `block_size` go where the family's config.json has such a field.
    """
    if family not in FAMILIES:
        raise unknown("family", family, FAMILIES)
    if vocab_size < _FEWEST_ROWS:
        raise RippleError(f"A random checkpoint needs at least {_FEWEST_ROWS} rows, not {vocab_size}.")
    if dtype not in _DTYPES:
        raise unknown("dtype", dtype, map(str, _DTYPES))
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    released = FAMILIES[family].format
    room = vocab_size - len(released.special_tokens) - _UNUSED_ROWS
    has_tokenizer = vocab_size >= _SMALLEST_TOKENIZER
    vocabulary = byte_vocabulary(room) if has_tokenizer else ByteVocabulary({}, [])
    ids = {token: (len(vocabulary.ids) or room) + i for i, token in enumerate(released.special_tokens)}
    sizes = CheckpointSizes(
        d_model, n_layers, n_heads, n_kv_heads or n_heads, d_ff, vocab_size, max_positions, tied,
        head_dim or d_model // n_heads, block_size,
    )  # fmt: skip
    config, generation = released.configs(sizes, ids)
    shared = {"torch_dtype": str(dtype).removeprefix("torch."), "transformers_version": "4.46.2"}
    write_json(folder / "config.json", config | shared)
    write_json(folder / "generation_config.json", generation)
    if has_tokenizer:
        released.write_tokenizer(folder, vocabulary, ids)
    _write_tensors(folder, seed, sharpness, dtype, max_shard_bytes)
    return folder


def _write_tensors(
    folder: Path, seed: int, sharpness: float, dtype: torch.dtype, max_shard_bytes: int | None
) -> None:
    """Write the tensors that config.json implies, one shard in memory at a time."""
    config = read_config(folder)
    _, shapes = FAMILIES[config.family].empty_weights(config, torch.device("meta"), dtype)
    shards: list[dict[str, torch.Tensor]] = [{}]
    n_bytes = 0  # of the last shard
    for name, shape in shapes.items():
        if max_shard_bytes is not None and shards[-1] and n_bytes + shape.nbytes > max_shard_bytes:
            shards.append({})
            n_bytes = 0
        shards[-1][name] = shape
        n_bytes += shape.nbytes
    files = ["model.safetensors"]
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)  # of an earlier checkpoint
    if max_shard_bytes is not None:
        files = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
        shard_of = {tensor: file for file, shard in zip(files, shards, strict=True) for tensor in shard}
        total = sum(shape.nbytes for shape in shapes.values())
        index = {"metadata": {"total_size": total}, "weight_map": shard_of}
        write_json(folder / "model.safetensors.index.json", index)
    generator = torch.Generator().manual_seed(seed)
    for file, shard in zip(files, shards, strict=True):
        tensors = {
            name: _random_tensor(name, shape, config, sharpness, generator) for name, shape in shard.items()
        }
        write_safetensors(folder / file, tensors, {"format": "pt"})


def _random_tensor(
    name: str, shape: torch.Tensor, config: ModelConfig, sharpness: float, generator: torch.Generator
) -> torch.Tensor:
    """Draw one tensor."""
    values = torch.randn(shape.shape, generator=generator).mul_(_scale(name, shape, config, sharpness))
    if shape.dim() == 1 and name.endswith("weight"):
        values += _gain(name, config)  # norms
    return values.to(shape.dtype)


def _scale(name: str, shape: torch.Tensor, config: ModelConfig, sharpness: float) -> float:
    """Return the standard deviation of one tensor's values.

    Masked positions have equal inputs and differ by what they attend to, so attention that is nearly uniform,
    or small beside the input, would make them all predict alike; hence the gains.
    """
    released = FAMILIES[config.family].format
    if name == released.head or (config.tied_head and name == released.embed):
        return sharpness / math.sqrt(shape.shape[-1])  # its input has unit variance
    if name == released.embed:
        return 1.0
    if shape.dim() == 1:
        return 0.1  # around 1 for norms, around 0 for biases
    return _gain(name, config) / math.sqrt(shape.shape[-1])


def _gain(name: str, config: ModelConfig) -> float:
    """Return how much larger than usual a family wants a tensor's values."""
    gains = FAMILIES[config.family].format.gains
    return next((gain for ending, gain in gains.items() if name.endswith(ending)), 1.0)
