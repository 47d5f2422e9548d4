"""The safetensors files of a model folder: which there are, what their headers say, and writing one.

The library checks every header (sizes, gaps, overlaps); tensors are read by checkpoint.py.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ripple.errors import RippleError
from ripple.models.json_files import read_json, shown

if TYPE_CHECKING:
    from torch import Tensor

INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32,
    "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


class StoredTensor(NamedTuple):
    """Where one tensor lies inside a file."""

    name: str
    dtype: str  # the format's own spelling
    shape: tuple[int, ...]
    start: int  # byte offset from the beginning of the file


def shard_paths(folder: Path) -> list[Path]:
    """Return the safetensors files of a checkpoint: those its index names, or the single one."""
    if not os.path.isdir(folder):
        raise RippleError(f"Model folder {folder} does not exist.")
    index = folder / INDEX
    if not os.path.exists(index):
        if not os.path.exists(folder / _SINGLE):
            raise RippleError(f"{folder} holds neither {INDEX} nor {_SINGLE}.")
        return [folder / _SINGLE]
    shard_of = read_json(index).get("weight_map")
    if not isinstance(shard_of, dict) or not shard_of:
        raise RippleError(f"{index} has no weight_map.")
    paths = []
    for shard in sorted({str(value) for value in shard_of.values()}):
        if Path(shard).name != shard:
            raise RippleError(f"{index} names the shard {shown(shard)}, which is not a plain file name.")
        if not os.path.isfile(folder / shard):
            raise RippleError(f"{folder} lacks the shard {shown(shard)} that its index names.")
        paths.append(folder / shard)
    return paths


def read_header(path: Path) -> list[StoredTensor]:
    """Return the tensors of one file in file order; none of their bytes are read."""
    from safetensors import SafetensorError, safe_open

    try:
        if not os.path.isfile(path):
            raise ValueError("a folder or a device")
        with safe_open(path, framework="numpy") as file:
            parts = [(name, file.get_slice(name)) for name in file.offset_keys()]
            infos = [(name, part.get_dtype(), tuple(part.get_shape())) for name, part in parts]
        with path.open("rb") as raw:
            start = 8 + int.from_bytes(raw.read(8), "little")
    except (SafetensorError, OSError, ValueError) as cause:
        reason = shown(str(cause).removeprefix("Error while deserializing header: "))
        raise RippleError(f"{path} is damaged or not a safetensors file: {reason}.") from cause
    tensors = []
    for name, dtype, shape in infos:
        if dtype not in _BITS:
            raise RippleError(f"{path}: {shown(name)} has the unknown dtype {shown(dtype)}.")
        tensors.append(StoredTensor(name, dtype, shape, start))
        start += math.prod(shape) * _BITS[dtype] // 8  # the library has checked that there are no gaps
    return tensors


def write_safetensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors into one file with the permissions of any other new file."""
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode
    save_file(dict(tensors), path, metadata=dict(metadata))  # makes a file that only its owner may read
    path.chmod(mode)
