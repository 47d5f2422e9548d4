"""Reads released safetensors checkpoints straight into a network's tensors on the device.

Files are read, not mapped: pages of a mapped shard would count as this process's memory next to the tensors
they were copied into. A tensor that needs no conversion is read into its place; any other passes through
one small staging buffer. Every header is checked before the first byte of a tensor is read. For fp8 a matrix
is quantised on its way, some rows at a time, unless the checkpoint is fp8 itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import torch

from ripple.errors import RippleError
from ripple.models.base import ModelConfig
from ripple.models.dense import SCALE
from ripple.models.families import FAMILIES, Family
from ripple.models.fp8 import FP8, check_layout, fill_quantised
from ripple.models.json_files import shown
from ripple.models.safetensors_files import StoredTensor, read_header, shard_paths

_STAGING_BYTES = 32 << 20
_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}
_FP8 = "F8_E4M3"


def read_weights(folder: Path, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Any:
    """Return the checkpoint in `folder` on `device`, converted to `dtype`, as its family lays out weights."""
    folder, family = Path(folder), FAMILIES[config.family]
    shards = checked_shards(folder, config, dtype)
    weights, places = family.empty_weights(config, device, dtype)
    staging = new_staging(device)
    for path, stored in shards:
        read_shard(path, stored, places, staging)
    return weights


def new_staging(device: torch.device) -> torch.Tensor:
    """Return the buffer that tensors on their way to a device pass through."""
    return torch.empty(_STAGING_BYTES, dtype=torch.uint8, pin_memory=device.type == "cuda")


def checked_shards(
    folder: Path, config: ModelConfig, dtype: torch.dtype
) -> list[tuple[Path, list[StoredTensor]]]:
    """Return the files of a checkpoint and what they hold, or raise unless that is what is to be read."""
    family = FAMILIES[config.family]
    shards = [(path, read_header(path)) for path in shard_paths(folder)]
    is_fp8 = any(tensor.dtype == _FP8 for _, stored in shards for tensor in stored)
    if is_fp8 and dtype != FP8:
        raise RippleError(
            f"The weights in {folder} are fp8 and can only be loaded as such: say dtype fp8, or load the "
            "checkpoint that they were made from."
        )
    _, expected = family.empty_weights(config, torch.device("meta"), dtype)
    if dtype == FP8:
        check_layout(config.family, expected)
        if not is_fp8:
            expected = {
                name: place.bfloat16() for name, place in expected.items() if not name.endswith(SCALE)
            }
    _check_tensors(folder, shards, expected, family)
    return shards


def read_shard(
    path: Path, stored: list[StoredTensor], places: dict[str, torch.Tensor], staging: torch.Tensor
) -> None:
    """Fill the places that one file's tensors have, and the scales of those that are quantised."""
    with path.open("rb", buffering=0) as file:
        for tensor in stored:
            place = places.get(tensor.name)
            if place is None:
                continue
            if place.dtype == FP8 and tensor.dtype != _FP8:
                _quantise_tensor(path, file, tensor, places)
            else:
                _read_tensor(path, file, tensor, place, staging)


def _check_tensors(
    folder: Path,
    shards: list[tuple[Path, list[StoredTensor]]],
    expected: dict[str, torch.Tensor],
    family: Family,
) -> None:
    """Raise unless the shards hold each expected tensor once, in its shape, and no unknown one."""
    seen: set[str] = set()
    for path, stored in shards:
        for tensor in stored:
            name = tensor.name
            if name not in expected:
                if family.unread.match(name):
                    continue
                raise RippleError(
                    f"{path} holds the tensor {shown(name)}, which its config.json does not imply."
                )
            if name in seen:
                raise RippleError(f"{path} holds the tensor {shown(name)} a second time.")
            shape = tuple(expected[name].shape)
            if tensor.shape != shape:
                raise RippleError(
                    f"{path}: {shown(name)} has shape {shown(tensor.shape)}, expected {list(shape)}."
                )
            supported = [_FP8] if expected[name].dtype == FP8 else list(_DTYPES)
            if tensor.dtype not in supported:
                raise RippleError(
                    f"{path}: {shown(name)} has dtype {tensor.dtype}, supported: {', '.join(supported)}."
                )
            seen.add(name)
    missing = [name for name in expected if name not in seen]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise RippleError(f"{folder} lacks the tensor {shown(missing[0])}{more}.")


def _read_tensor(
    path: Path, file: BinaryIO, tensor: StoredTensor, place: torch.Tensor, staging: torch.Tensor
) -> None:
    """Fill `place`, a contiguous view of the weights, with one tensor of `file`."""
    file.seek(tensor.start)
    dtype = FP8 if tensor.dtype == _FP8 else _DTYPES[tensor.dtype]
    flat = place.view(-1)
    if place.device.type == "cpu" and place.dtype == dtype:
        _fill(path, file, flat.view(torch.uint8))
        return
    step = staging.numel() // dtype.itemsize
    for first in range(0, flat.numel(), step):
        target = flat[first : first + step]
        buffer = staging[: target.numel() * dtype.itemsize]
        _fill(path, file, buffer)
        target.copy_(buffer.view(dtype))  # blocking, so the buffer is free again


def _quantise_tensor(
    path: Path, file: BinaryIO, tensor: StoredTensor, places: dict[str, torch.Tensor]
) -> None:
    """Fill a matrix and its scales with one tensor of `file`, whole rows at a time."""
    file.seek(tensor.start)
    dtype, (n, k) = _DTYPES[tensor.dtype], tensor.shape
    step = max(1, _STAGING_BYTES // (k * dtype.itemsize))
    for first in range(0, n, step):
        rows = torch.empty(min(step, n - first), k, dtype=dtype)
        _fill(path, file, rows.view(-1).view(torch.uint8))
        fill_quantised(tensor.name, places, rows.to(places[tensor.name].device), first)


def _fill(path: Path, file: BinaryIO, target: torch.Tensor) -> None:
    """Read exactly as many bytes as `target` (uint8, cpu) holds."""
    rest = target.numpy().data
    while rest:
        count = file.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            raise RippleError(f"{path} ended while it was being read.")
        rest = rest[count:]
