"""However a model folder is damaged, loading it works or gives one sentence, soon."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import load_file

from ripple.errors import RippleError
from ripple.models.load import load_model
from ripple.models.random_checkpoint import write_random_checkpoint

N_DAMAGES = 60  # of each file
SECONDS = 1.0
INDEX = "model.safetensors.index.json"
SHARD = "model-00002-of-00002.safetensors"
DEEP = "DEEP"  # stands for nesting that json.dumps itself could not write

# What a value may be replaced by.
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 1000, 100_000, 2**24, 2**31, 2**63, 2**64, 10**30, 10**400,
    0.5, -0.0, 1e-320, 1e308, math.nan, math.inf, -math.inf, "", "x", "0", "\ud800", "\0", "../x", "..",
    "/dev/zero",
    "x" * 300, "x" * 100_000, "model.safetensors", [], [[]], [None], [0, 4], [-4, 0], [2**63, 2**63], ["F32"],
    [1.5], [True, True], list(range(1000)), {}, {"": None}, {"a": {"b": []}}, DEEP, "F32", "BF16", "I64",
]  # fmt: skip


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small checkpoint of each family, in two shards and with a tokenizer."""
    place = tmp_path_factory.mktemp("checkpoints")
    sizes: dict[str, Any] = {"d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 8, "vocab_size": 300}
    how = sizes | {"max_positions": 64, "max_shard_bytes": 11_000}
    return {family: write_random_checkpoint(place / family, family, **how) for family in ("llada", "dream")}


def outcome(folder: Path) -> str:
    """Load a folder; return `loaded` or the sentence, and fail on anything else."""
    start = time.process_time()
    try:
        load_model(folder, "cpu")
        said = "loaded"
    except RippleError as error:
        said = str(error)
    assert time.process_time() - start < SECONDS, said
    assert len(said) < 1000 and said.isprintable(), said
    return said


def dumped(value: Any) -> bytes:
    return json.dumps(value).replace(f'"{DEEP}"', "[" * 20_000 + "]" * 20_000).encode()


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of every value inside a JSON value, itself excluded."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*at, key)
        yield from paths(inner, (*at, key))


def damaged_json(text: bytes, rng: random.Random) -> bytes:
    """Replace, remove, add or rename one value, or damage the text itself."""
    value = json.loads(text)
    if rng.random() < 0.15:
        return damaged_bytes(text, rng)
    *outer, key = rng.choice(list(paths(value)))
    parent = value
    for step in outer:
        parent = parent[step]
    match rng.randrange(6):
        case 0:
            del parent[key]
        case 1 if isinstance(parent, dict):
            parent["x" * rng.choice([1, 300, 70_000])] = parent.pop(key)
        case 2 if isinstance(parent, dict):
            parent[rng.choice(["a", "\ud800", "\0", "__metadata__"])] = rng.choice(VALUES)
        case _:
            parent[key] = rng.choice(VALUES)
    return dumped(value if rng.random() < 0.95 else rng.choice([[value], *VALUES]))


def damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, repeat or insert bytes."""
    at, n = rng.randrange(len(data)), rng.choice([1, 1, 2, 8, 100])
    noise = rng.randbytes(n)
    before, behind = data[:at], data[at + n :]
    damaged = [before, behind, b"", b"\xff\xfe" + data, data + noise, data[:at] + noise + data[at:]]
    return rng.choice([*damaged, before + behind, before + noise + behind, before + b"\0" * n + behind])


def damaged_safetensors(data: bytes, rng: random.Random) -> bytes:
    """Damage the header's values, its length or any bytes."""
    (length,) = struct.unpack("<Q", data[:8])
    header, tensors = data[8 : 8 + length], data[8 + length :]
    if rng.random() < 0.7:
        header = damaged_json(header, rng)
        return struct.pack("<Q", len(header)) + header + tensors
    if rng.random() < 0.3:
        wrong = rng.choice([0, 1, length - 1, length + 8, 2**31, 2**63, 2**64 - 1])
        return struct.pack("<Q", wrong) + data[8:]
    return damaged_bytes(data, rng)


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    ".json": damaged_json, ".safetensors": damaged_safetensors, ".txt": damaged_bytes
}  # fmt: skip
FILES = {
    "llada": (
        "config.json",
        "generation_config.json",
        INDEX,
        SHARD,
        "tokenizer.json",
        "tokenizer_config.json",
    ),
    "dream": ("config.json", SHARD, "vocab.json", "merges.txt", "tokenizer_config.json"),
}


@pytest.mark.parametrize(("family", "file"), [(family, file) for family in FILES for file in FILES[family]])
def test_a_damaged_file_loads_or_gives_one_sentence(
    checkpoints: dict[str, Path], family: str, file: str
) -> None:
    rng = random.Random(f"{family} {file}")
    path = checkpoints[family] / file
    whole = path.read_bytes()
    refused = 0
    for _ in range(N_DAMAGES):
        path.write_bytes(DAMAGES[path.suffix](whole, rng))
        said = outcome(path.parent)
        refused += said != "loaded"
        if file == SHARD and said == "loaded":
            with safe_open(path, "pt"):  # so what the library refuses is refused
                pass
    path.write_bytes(whole)
    assert outcome(path.parent) == "loaded"
    assert refused > N_DAMAGES / 10, "the damages are too mild"


@pytest.fixture
def folder(checkpoints: dict[str, Path], tmp_path: Path) -> Path:
    """A LLaDA checkpoint that a test may break."""
    return Path(shutil.copytree(checkpoints["llada"], tmp_path / "model"))


def config_with(folder: Path, **changes: Any) -> Path:
    path = folder / "config.json"
    path.write_bytes(dumped(json.loads(path.read_text()) | changes))
    return folder


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"n_layers": 100_000}, "n_layers = 100000, but it must be at most 1000."),
        ({"n_layers": 1000}, 'lacks the tensor "model.transformer.blocks.1.attn_norm.weight" and 8990 more.'),
        ({"d_model": 10**400}, "0..., but it must be at most 16777216."),
        ({"d_model": 2**24, "n_heads": 2**23}, 'attn_norm.weight" has shape [8], expected [16777216].'),
        (
            {"max_sequence_length": 2**40},
            "max_sequence_length = 1099511627776, but it must be at most 1048576.",
        ),
        ({"rms_norm_eps": math.nan}, "rms_norm_eps = NaN, but it must be a number above 0."),
        ({"rope_theta": math.inf}, "rope_theta = Infinity, but it must be a number above 0."),
        ({"rope_theta": 10**400}, "0..., but it must be a number above 0."),
        ({"mlp_hidden_size": None, "mlp_ratio": 1e300}, "mlp_ratio = 1e+300, but it must be between"),
        ({"alibi": DEEP}, "config.json cannot be read as JSON."),
        ({"architectures": ["x" * 100_000]}, "xxx...'. Known: DreamModel, LLaDA2MoeModelLM, LLaDAModelLM, "),
        ({"architectures": {"a": ["b"]}}, 'Unknown architecture \'{"a": ["b"]}\'.'),
        ({"eos_token_id": [10**30]}, "but ids are whole numbers."),
        ({"mask_token_id": 2**63}, "mask_token_id = 9223372036854775808, but it must be at most 16777216."),
    ],
    ids=str,
)
def test_a_hostile_config_gives_its_sentence(folder: Path, changes: dict[str, Any], sentence: str) -> None:
    assert sentence in outcome(config_with(folder, **changes))


def header(*spans: tuple[int, int]) -> bytes:
    """A safetensors file of 16 bytes of fp32 tensors that claim to lie at these offsets."""
    entries = {
        f"t{i}": {"dtype": "F32", "shape": [(stop - start) // 4], "data_offsets": [start, stop]}
        for i, (start, stop) in enumerate(spans)
    }
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + bytes(16)


@pytest.mark.parametrize(
    "spans",
    [[(0, 16), (0, 16)], [(0, 12), (8, 16)], [(0, 8), (12, 16)], [(4, 16)], [(0, 12)], [(0, 8), (8, 20)]],
)
def test_offsets_that_overlap_or_leave_gaps_are_refused(folder: Path, spans: list[tuple[int, int]]) -> None:
    (folder / SHARD).write_bytes(header(*spans))
    assert f"{SHARD} is damaged or not a safetensors file" in outcome(folder)
    (folder / SHARD).write_bytes(header((0, 8), (8, 16)))
    assert 'holds the tensor "t0", which its config.json does not imply.' in outcome(folder)


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "tokenizer_config.json", INDEX, SHARD]
)
def test_a_pipe_or_a_folder_in_the_place_of_a_file_does_not_hang(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert name in outcome(folder)
    (folder / name).unlink()
    (folder / name).mkdir()
    assert name in outcome(folder)


def test_a_header_may_list_tensors_in_another_order_than_they_lie_in(folder: Path) -> None:
    path = folder / SHARD
    head = load_file(path)["model.transformer.ff_out.weight"].clone()  # the file is mapped
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    entries = dict(reversed(json.loads(whole[8 : 8 + length]).items()))
    text = json.dumps(entries).encode() + b"  "
    path.write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + length :])
    model, _ = load_model(folder, "cpu")
    assert model.weights.head.equal(head)
