"""The CUDA kernels for Hopper GPUs, run on a CPU: each thread a fibre, copies and products late at random."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")
from ripple.models.base import ForwardInputs
from ripple.models.gpu import attention_hopper, hopper
from tests.models.test_kernels import dense_attention

HERE = Path(__file__).parent
needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")


class Map(ctypes.Structure):
    """The CPU's tensor map."""

    _fields_ = [("base", ctypes.c_void_p), ("n", ctypes.c_int64)] + [
        (name, ctypes.c_int64 * 4) for name in ("sizes", "strides", "box")
    ]


def tensor_map(of: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int]) -> Map:
    assert box[0] * 2 == 128, "a line of a swizzled tile has 128 bytes"
    return Map(of.data_ptr(), len(sizes), *((ctypes.c_int64 * 4)(*x) for x in (sizes, (2, *strides), box)))


def wgmma(rows: int, sums: str, left: str, right: str, accumulate: str, mn_major: bool = False) -> str:
    if left.endswith("[]"):
        return f"product_of_registers({sums}, {left[:-2]}, {right});"
    return f"product_of_tiles({sums}, {left}, {right}, {accumulate});"


@pytest.fixture(scope="session")
def header(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The CPU's functions as a precompiled header."""
    copy = Path(shutil.copy(HERE / "hopper_on_cpu.h", tmp_path_factory.mktemp("header")))
    compile_cpp("-x", "c++-header", str(copy), "-o", f"{copy}.gch")
    return copy


def compile_cpp(*words: str) -> None:
    subprocess.run(["g++", "-std=c++17", "-O1", "-w", "-fPIC", *words], check=True, timeout=120)


@pytest.fixture
def on_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """Replace the driver by a small Hopper GPU that runs launches on the CPU."""

    def compiled(name: str, text: str, device: torch.device, shared_bytes: int) -> Any:
        assert shared_bytes <= hopper.SHARED_BYTES
        names, text = text.split((HERE.parents[1] / "src/ripple/models/gpu/hopper.cuh").read_text())
        cluster = re.search(r"__cluster_dims__\((.*?)\)", text)
        assert cluster is not None
        run = (
            'extern "C" void run(int x, int y, int z, int threads, void** values)'
            f" {{ run_grid({name}, {{x, y, z}}, {{{cluster[1]}}}, threads, values); }}\n"
        )
        source, library = tmp_path / "kernel.cpp", tmp_path / f"{len(list(tmp_path.iterdir()))}.so"
        source.write_text(f'#include "{request.getfixturevalue("header")}"\n{names}{text}{run}')
        compile_cpp("-shared", str(source), "-o", str(library))
        return ctypes.CDLL(str(library)).run

    def launch(
        kernel: Any,
        device: torch.device,
        grid: Sequence[int],
        n_threads: int,
        shared_bytes: int,
        *values: Any,
    ) -> None:
        converted = [hopper._argument(value) for value in values]
        kernel(*grid, n_threads, (ctypes.c_void_p * len(converted))(*map(ctypes.addressof, converted)))

    for name, stand_in in (
        ("compiled", compiled), ("launch", launch), ("tensor_map", tensor_map), ("wgmma", wgmma),
        ("is_hopper", lambda device: True), ("n_multiprocessors", lambda device: 12),
        ("n_clusters", lambda kernel, size, n_threads, shared_bytes: 12 // size),
    ):  # fmt: skip
        monkeypatch.setattr(hopper, name, stand_in)
    yield
    attention_hopper._kernel.cache_clear()
    attention_hopper._n_parts.cache_clear()


def gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.float() - b.float()).norm() / b.float().norm())


@needs_gcc
@pytest.mark.parametrize("build", [attention_hopper.SMALL, attention_hopper.LARGE])
@pytest.mark.parametrize(
    ("s", "r", "g", "w", "n_keys", "heads", "kv_heads", "n_processors"),
    [
        (1, 32, 4, 32, 700, 1, 1, 12), (2, 5, 3, 4, 290, 2, 1, 12), (1, 33, 0, 0, 100, 2, 2, 12),
        (1, 33, 2, 33, 530, 6, 2, 12),
        (1, 32, 3, 32, 700, 1, 1, 1),  # all keys in one part: more tiles than stages
        (2, 9, 2, 9, 300, 4, 2, 24),
    ],
)  # fmt: skip
def test_attention_on_stored_keys_sees_what_it_may_see(
    on_cpu: None, monkeypatch: pytest.MonkeyPatch, s: int, r: int, g: int, w: int, n_keys: int, heads: int,
    kv_heads: int, n_processors: int, build: attention_hopper.Build,
) -> None:  # fmt: skip
    monkeypatch.setattr(hopper, "n_multiprocessors", lambda device: n_processors)
    monkeypatch.setattr(attention_hopper, "_build", lambda device, n_rows, n_heads: build)
    t, d = r + g * w, 128
    lengths = torch.tensor([n_keys - 7 * i for i in range(s)])
    lo = torch.randint(0, n_keys - 40, (s, g * w))
    lo[:, ::3] = lo[:, ::3] // 64 * 64 + 63  # the last key of a tile
    hidden = torch.stack([lo, lo + torch.randint(1, 40, (s, g * w))], dim=-1)
    own = torch.randint(1, w + 1, (s, g)) if g else None
    rows = torch.zeros(s, t, dtype=torch.int64)
    slots = torch.tensor([2, 0])[:s]
    fwd = ForwardInputs(rows, rows, r, w, n_keys, None, hidden if g else None, own, rows[0, :1], slots=slots)
    k, v = torch.full(
        (2, 3, kv_heads, n_keys + 5, d), torch.nan
    ).bfloat16()  # others' slots, and beyond the end
    for c, n in enumerate(lengths):
        k[slots[c], :, :n], v[slots[c], :, :n] = torch.randn(2, kv_heads, int(n), d).bfloat16()
    qkv = torch.randn(s * t, (heads + 2 * kv_heads) * d).bfloat16()
    out = attention_hopper.attend(qkv, k, v, slots, lengths, fwd, heads)
    assert gap(out, dense_attention(qkv.float(), k.float(), v.float(), slots, lengths, fwd, heads)) < 1e-2


@needs_gcc
def test_branches_read_keys_in_the_qkv_product(on_cpu: None) -> None:
    s, r, g, w, heads, kv_heads, d = 2, 70, 3, 8, 4, 2, 128
    t = r + g * w
    rows, slots = torch.zeros(s, t, dtype=torch.int64), torch.arange(s)
    lo = torch.randint(0, 50, (s, g * w))
    hidden, own = torch.stack([lo, lo + 9], dim=-1), torch.tensor([[8, 3, 1], [8, 8, 5]])
    fwd = ForwardInputs(rows, rows, r, w, r, None, hidden, own, rows[0, :1])
    qkv, lengths = torch.randn(s * t, (heads + 2 * kv_heads) * d).bfloat16(), torch.tensor([r, r - 9])
    keys, values = qkv.view(s, t, -1, d)[:, :r, heads:].transpose(1, 2).split(kv_heads, dim=1)
    out = torch.full((s * t, heads * d), 7.0).bfloat16()
    attention_hopper.attend(qkv, keys, values, slots, lengths, fwd, heads, r, out)
    exact = dense_attention(qkv.float(), keys.float(), values.float(), slots, lengths, fwd, heads)
    is_branch = torch.arange(s * t) % t >= r
    assert gap(out[is_branch], exact[is_branch]) < 1e-2 and (out[~is_branch] == 7).all()


@needs_gcc
def test_nan_in_one_canvas_reaches_no_other(on_cpu: None) -> None:
    t, d, n_keys = 5 + 3 * 4, 128, 130
    rows = torch.zeros(2, t, dtype=torch.int64)
    hidden, slots = torch.zeros(2, 12, 2, dtype=torch.int64), torch.tensor([0, 1])
    own, lengths = torch.full((2, 3), 4), torch.tensor([n_keys, n_keys])
    fwd = ForwardInputs(rows, rows, 5, 4, n_keys, None, hidden, own, rows[0, :1], slots=slots)
    k, v = torch.randn(2, 2, 1, n_keys, d).bfloat16()
    qkv = torch.randn(2 * t, 3 * d).bfloat16()
    alone = attention_hopper.attend(qkv, k, v, slots, lengths, fwd, 1)[:t].clone()
    for tensor in (qkv[t:], k[1], v[1]):
        tensor.fill_(torch.nan)
    assert torch.equal(attention_hopper.attend(qkv, k, v, slots, lengths, fwd, 1)[:t], alone)


@pytest.mark.parametrize(
    ("n_rows", "n_heads", "build"),
    [(32, 32, "SMALL"), (160, 32, "SMALL"), (48 * 7, 4, "SMALL"), (288, 32, "LARGE"), (32, 150, "LARGE")],
)
def test_blocks_are_small_while_there_are_few(
    on_cpu: None, monkeypatch: pytest.MonkeyPatch, n_rows: int, n_heads: int, build: str
) -> None:
    monkeypatch.setattr(hopper, "n_multiprocessors", lambda device: 132)
    assert attention_hopper._build(torch.device("cpu"), n_rows, n_heads) == getattr(attention_hopper, build)


def test_other_dtypes_heads_and_limits_are_left_to_the_other_kernel(on_cpu: None) -> None:
    keys, qkv = torch.zeros(1, 32, 256, 128).bfloat16(), torch.zeros(32, 96 * 128).bfloat16()
    assert attention_hopper.fits(qkv, keys)
    assert not attention_hopper.fits(qkv.float(), keys)
    assert not attention_hopper.fits(qkv, keys[..., :64])
    assert not attention_hopper.fits(qkv, keys, limit=torch.ones(1, 32, dtype=torch.int64))


@pytest.mark.parametrize(
    ("versions", "expected"), [({}, None), ({"libnvrtc.so": 11}, None), ({"libnvrtc.so": 12}, 12)]
)
def test_a_compiler_that_is_missing_or_too_old_leaves_the_work_to_triton(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, int], expected: int | None
) -> None:
    class Library:
        def __init__(self, name: str) -> None:
            if name not in versions:
                raise OSError(name)
            self.version = versions[name]

        def nvrtcVersion(self, major: Any, minor: Any) -> int:
            major._obj.value = self.version
            return 0

    monkeypatch.setattr(ctypes, "CDLL", Library)
    library = hopper._compiler.__wrapped__()
    assert (None if library is None else library.version) == expected
