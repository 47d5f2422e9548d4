"""Reads released safetensors checkpoints straight into fused tensors on the device.

Files are read, not mapped: pages of a mapped shard would count as this process's memory next to the tensors
they were copied into. A tensor that needs no conversion is read into its place; any other passes through
one small staging buffer. Every header is checked before the first byte of a tensor is read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch

from ripple.errors import RippleError
from ripple.models.config import read_json
from ripple.models.records import LayerWeights, ModelConfig, Weights

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_STAGING_BYTES = 32 << 20
_MAX_HEADER_BYTES = 100 << 20  # the format's own limit
_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}
_HARMLESS = re.compile(r"\.rotary_emb\.(inv_freq|pos_sin|pos_cos)$|\.rotary_emb\.\w+_cached$")

# role -> released name; `{}` is the layer number
TOP_NAMES = {
    "llada": {
        "embed": "model.transformer.wte.weight",
        "norm": "model.transformer.ln_f.weight",
        "head": "model.transformer.ff_out.weight",
    },
    "dream": {"embed": "model.embed_tokens.weight", "norm": "model.norm.weight", "head": "lm_head.weight"},
}
LAYER_NAMES = {
    "llada": {
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
    "dream": {
        "attn_norm": "model.layers.{}.input_layernorm.weight",
        "q": "model.layers.{}.self_attn.q_proj",
        "k": "model.layers.{}.self_attn.k_proj",
        "v": "model.layers.{}.self_attn.v_proj",
        "out": "model.layers.{}.self_attn.o_proj.weight",
        "mlp_norm": "model.layers.{}.post_attention_layernorm.weight",
        "gate": "model.layers.{}.mlp.gate_proj.weight",
        "up": "model.layers.{}.mlp.up_proj.weight",
        "down": "model.layers.{}.mlp.down_proj.weight",
    },
}


class _Entry(NamedTuple):
    """Where one tensor lies inside a shard."""

    name: str
    dtype: str  # the format's own spelling
    shape: tuple[int, ...]
    start: int  # byte offset from the beginning of the file
    stop: int


def read_weights(folder: Path, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Weights:
    """Return the checkpoint in `folder` as fused tensors on `device`, converted to `dtype`."""
    folder = Path(folder)
    shards = [(path, list(_read_header(path))) for path in _shard_paths(folder)]
    _, expected = empty_weights(config, torch.device("meta"), dtype)
    skipped = {TOP_NAMES[config.family]["head"]} if config.tied_head else set()
    _check_tensors(folder, shards, expected, skipped)

    weights, places = empty_weights(config, device, dtype)
    staging = torch.empty(_STAGING_BYTES, dtype=torch.uint8, pin_memory=device.type == "cuda")
    for path, entries in shards:
        with path.open("rb", buffering=0) as file:
            for entry in entries:
                if entry.name in places:
                    _read_tensor(path, file, entry, places[entry.name], staging)
    return weights


def empty_weights(
    config: ModelConfig, device: torch.device, dtype: torch.dtype
) -> tuple[Weights, dict[str, torch.Tensor]]:
    """Return uninitialised weights, and for every released tensor name the view of them that it fills."""

    def new(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    top, names = TOP_NAMES[config.family], LAYER_NAMES[config.family]
    d, q_rows = config.d_model, config.n_heads * config.head_dim
    kv_rows = config.n_kv_heads * config.head_dim
    split = [q_rows, kv_rows, kv_rows]
    embed = new(config.vocab_size, d)
    places = {top["embed"]: embed}
    layers = []
    for number in range(config.n_layers):
        layer = LayerWeights(
            attn_norm=new(d),
            qkv=new(sum(split), d),
            qkv_bias=new(sum(split)) if config.qkv_bias else None,
            out=new(d, q_rows),
            mlp_norm=new(d),
            gate_up=new(2 * config.d_ff, d),
            down=new(d, config.d_ff),
        )
        layers.append(layer)
        own = {role: name.format(number) for role, name in names.items()}
        for role in ("attn_norm", "out", "mlp_norm", "down"):
            places[own[role]] = getattr(layer, role)
        for role, rows in zip("qkv", torch.split(layer.qkv, split), strict=True):
            places[own[role] + ".weight"] = rows
        if layer.qkv_bias is not None:
            for role, rows in zip("qkv", torch.split(layer.qkv_bias, split), strict=True):
                places[own[role] + ".bias"] = rows
        places[own["gate"]], places[own["up"]] = torch.split(layer.gate_up, config.d_ff)
    places[top["norm"]] = norm = new(d)
    head = embed
    if not config.tied_head:
        places[top["head"]] = head = new(config.vocab_size, d)
    return Weights(embed=embed, layers=layers, norm=norm, head=head), places


def _shard_paths(folder: Path) -> list[Path]:
    """Return the safetensors files of a checkpoint: those its index names, or the single one."""
    if not folder.is_dir():
        raise RippleError(f"Model folder {folder} does not exist.")
    index = folder / _INDEX
    if not index.is_file():
        if not (folder / _SINGLE).is_file():
            raise RippleError(f"{folder} holds neither {_INDEX} nor {_SINGLE}.")
        return [folder / _SINGLE]
    shard_of = read_json(index).get("weight_map")
    if not isinstance(shard_of, dict) or not shard_of:
        raise RippleError(f"{index} has no weight_map.")
    paths = []
    for shard in sorted({str(value) for value in shard_of.values()}):
        if Path(shard).name != shard:
            raise RippleError(f"{index} names the shard {shard!r}, which is not a plain file name.")
        if not (folder / shard).is_file():
            raise RippleError(f"{folder} lacks the shard {shard} that its index names.")
        paths.append(folder / shard)
    return paths


def _read_header(path: Path) -> Iterator[_Entry]:
    """Yield the tensors of one safetensors file in file order, each checked against the file's size."""
    total = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if total < 8 or not 2 <= length <= _MAX_HEADER_BYTES:
            raise RippleError(f"{path} is not a safetensors file.")
        if 8 + length > total:
            raise RippleError(f"{path} is truncated inside its header.")
        text = file.read(length)
    try:
        header = json.loads(text)
        entries = [_parse_entry(k, v, 8 + length) for k, v in header.items() if k != "__metadata__"]
    except (ValueError, TypeError, KeyError, AttributeError) as cause:
        raise RippleError(f"{path} has a corrupt safetensors header.") from cause
    for entry in sorted(entries, key=lambda item: item.start):
        if entry.stop > total:
            raise RippleError(
                f"{path} is truncated: {entry.name} ends at byte {entry.stop} of a file of {total} bytes."
            )
        yield entry


def _parse_entry(name: str, value: dict[str, Any], base: int) -> _Entry:
    """Return one header entry; raises the built-in errors that its caller turns into a sentence."""
    start, stop = (int(offset) for offset in value["data_offsets"])
    shape = tuple(int(extent) for extent in value["shape"])
    if not 0 <= start <= stop or any(extent < 0 for extent in shape):
        raise ValueError(name)
    dtype = str(value["dtype"])
    if dtype in _DTYPES and stop - start != math.prod(shape) * _DTYPES[dtype].itemsize:
        raise ValueError(name)
    return _Entry(name, dtype, shape, base + start, base + stop)


def _check_tensors(
    folder: Path,
    shards: list[tuple[Path, list[_Entry]]],
    expected: dict[str, torch.Tensor],
    skipped: set[str],
) -> None:
    """Raise unless the shards hold each expected tensor once, in its shape, and no unknown one."""
    seen: set[str] = set()
    for path, entries in shards:
        for entry in entries:
            if entry.name in skipped or _HARMLESS.search(entry.name):
                continue
            if entry.name not in expected:
                raise RippleError(
                    f"{path} holds the tensor {entry.name}, which its config.json does not imply."
                )
            if entry.name in seen:
                raise RippleError(f"{path} holds the tensor {entry.name} a second time.")
            wanted = tuple(expected[entry.name].shape)
            if entry.shape != wanted:
                raise RippleError(
                    f"{path}: {entry.name} has shape {list(entry.shape)}, expected {list(wanted)}."
                )
            if entry.dtype not in _DTYPES:
                raise RippleError(
                    f"{path}: {entry.name} has dtype {entry.dtype}, supported: {', '.join(_DTYPES)}."
                )
            seen.add(entry.name)
    missing = [name for name in expected if name not in seen]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise RippleError(f"{folder} lacks the tensor {missing[0]}{more}.")


def _read_tensor(
    path: Path, file: BinaryIO, entry: _Entry, place: torch.Tensor, staging: torch.Tensor
) -> None:
    """Fill `place`, a contiguous view of the weights, with one tensor of `file`."""
    file.seek(entry.start)
    stored = _DTYPES[entry.dtype]
    flat = place.view(-1)
    if place.device.type == "cpu" and place.dtype == stored:
        _fill(path, file, flat.view(torch.uint8))
        return
    step = staging.numel() // stored.itemsize
    for first in range(0, flat.numel(), step):
        target = flat[first : first + step]
        buffer = staging[: target.numel() * stored.itemsize]
        _fill(path, file, buffer)
        target.copy_(buffer.view(stored))  # blocking, so the buffer is free again


def _fill(path: Path, file: BinaryIO, target: torch.Tensor) -> None:
    """Read exactly as many bytes as `target` (uint8, cpu) holds."""
    rest = target.numpy().data
    while rest:
        count = file.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            raise RippleError(f"{path} ended while it was being read.")
        rest = rest[count:]
