"""CUDA kernels for Hopper GPUs: compiled at run time (NVRTC), given tensor maps, launched.

They use what Triton does not offer: clusters of blocks that read each other's shared memory. The compiler
comes with torch; nothing is built when Ripple is installed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

Tensor = torch.Tensor
SHARED_BYTES = 232_448  # of a multiprocessor, for one block
# The driver's enumerators.
BF16, SWIZZLE_128, PROMOTE_256 = 9, 3, 3  # of tensor maps
MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
MIN_NVRTC_MAJOR = 12  # the first that compiles for Hopper


@lru_cache(maxsize=8)
def is_hopper(device: torch.device) -> bool:
    """Say whether these kernels can be compiled for a device and run there."""
    is_one = device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)
    return is_one and _compiler() is not None


@lru_cache(maxsize=8)
def n_multiprocessors(device: torch.device) -> int:
    """Return how many blocks run at once when each needs a multiprocessor for itself."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def source(name: str, **defined: object) -> str:
    """Return the source of a kernel with these names defined."""
    here = Path(__file__).parent
    texts = [(here / file).read_text(encoding="utf-8") for file in ("hopper.cuh", f"{name}.cu")]
    return "".join(f"#define {key} {value}\n" for key, value in defined.items()) + "".join(texts)


def compiled(name: str, text: str, device: torch.device, shared_bytes: int) -> ctypes.c_void_p:
    """Compile a kernel, in about half a second, and allow it its shared memory."""
    driver, module, kernel = _driver(), ctypes.c_void_p(), ctypes.c_void_p()
    with torch.cuda.device(device):
        _check(driver.cuModuleLoadData(ctypes.byref(module), machine_code(text)))
        _check(driver.cuModuleGetFunction(ctypes.byref(kernel), module, name.encode()))
        _check(driver.cuFuncSetAttribute(kernel, MAX_DYNAMIC_SHARED, shared_bytes))
    return kernel


def machine_code(text: str) -> bytes:
    """Return the machine code (cubin) of a CUDA source for Hopper."""
    nvrtc, program, size = _compiler(), ctypes.c_void_p(), ctypes.c_size_t()
    assert nvrtc is not None, "is_hopper says whether there is a compiler"
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"ripple.cu", 0, None, None))
    try:
        failed = nvrtc.nvrtcCompileProgram(program, 1, (ctypes.c_char_p * 1)(b"--gpu-architecture=sm_90a"))
        _check(nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
        log = ctypes.create_string_buffer(size.value)
        _check(nvrtc.nvrtcGetProgramLog(program, log))
        if failed:
            raise RuntimeError(f"A kernel could not be compiled: {log.value.decode()}")
        _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        code = ctypes.create_string_buffer(size.value)
        _check(nvrtc.nvrtcGetCUBIN(program, code))
        return code.raw
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def tensor_map(of: Tensor, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int]) -> Any:
    """Return the descriptor with which bulk copies read boxes of a bf16 tensor.

    Sizes and box are in elements, fastest dimension first; strides in bytes, that of the first left out.
    """
    n, map_bytes, alignment = len(sizes), 128, 64
    memory = (ctypes.c_char * (map_bytes + alignment))()
    aligned = (ctypes.c_char * map_bytes).from_buffer(memory, -ctypes.addressof(memory) % alignment)
    wide, narrow = ctypes.c_uint64 * n, ctypes.c_uint32 * n
    _check(
        _driver().cuTensorMapEncodeTiled(
            aligned, BF16, n, ctypes.c_void_p(of.data_ptr()), wide(*sizes), wide(*strides), narrow(*box),
            narrow(*[1] * n), 0, SWIZZLE_128, PROMOTE_256, 0,
        )
    )  # fmt: skip
    return aligned


def launch(
    kernel: ctypes.c_void_p, device: torch.device, grid: Sequence[int], n_threads: int, shared_bytes: int,
    *values: Any,
) -> None:  # fmt: skip
    """Launch a kernel on the current stream; values are tensor maps, tensors, whole numbers and floats."""
    converted = [_argument(value) for value in values]
    arguments = (ctypes.c_void_p * len(converted))(*map(ctypes.addressof, converted))
    stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
    _check(_driver().cuLaunchKernel(kernel, *grid, n_threads, 1, 1, shared_bytes, stream, arguments, None))


def n_clusters(kernel: ctypes.c_void_p, size: int, n_threads: int, shared_bytes: int) -> int:
    """Return how many clusters of a kernel can be resident at once."""
    cluster, count = _Attribute(CLUSTER_DIMENSION, 0, (1, 1, size)), ctypes.c_int()
    launch_config = _LaunchConfig(
        (1, 1, size, n_threads, 1, 1), shared_bytes, None, ctypes.pointer(cluster), 1
    )
    _check(_driver().cuOccupancyMaxActiveClusters(ctypes.byref(count), kernel, ctypes.byref(launch_config)))
    return count.value


class _Attribute(ctypes.Structure):
    """The driver's CUlaunchAttribute."""

    _fields_ = [("name", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_int * 16)]


class _LaunchConfig(ctypes.Structure):
    """The driver's CUlaunchConfig."""

    _fields_ = [
        ("sizes", ctypes.c_uint * 6),  # of the grid, then of a block
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("n_attributes", ctypes.c_uint),
    ]


def wgmma(rows: int, sums: str, left: str, right: str, accumulate: str, mn_major: bool = False) -> str:
    """Return the statement that adds a product of 64 x 16 and 16 x rows elements to `sums`, [rows / 2].

    `left` is an array of 4 registers if it ends in [], else the descriptor of a tile, as `right` is. The
    product overwrites the sums where `accumulate` is 0. `mn_major`: `right` lies across the inner dimension.
    """
    n = rows // 2
    operands = [f'"+f"({sums}[{i}])' for i in range(n)]
    registers = [f'"r"({left[:-2]}[{i}])' for i in range(4)] if left.endswith("[]") else [f'"l"({left})']
    a = ", ".join(f"%{n + i}" for i in range(len(registers)))
    b = n + len(registers)
    transposed = f"{int(mn_major)}" if len(registers) == 4 else f"0, {int(mn_major)}"
    return (
        f'asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{b + 1}, 0; '
        f"wgmma.mma_async.sync.aligned.m64n{rows}k16.f32.bf16.bf16 "
        f"{{{', '.join(f'%{i}' for i in range(n))}}}, {f'{{{a}}}' if len(registers) == 4 else a}, %{b}, "
        f'p, 1, 1, {transposed}; }}" : {", ".join(operands)} : '
        f'{", ".join(registers)}, "l"({right}), "r"({accumulate}));'
    )


def _argument(value: Any) -> Any:
    if isinstance(value, Tensor):
        return ctypes.c_void_p(value.data_ptr())
    if isinstance(value, float):
        return ctypes.c_float(value)
    return ctypes.c_int(value) if isinstance(value, int) else value


@lru_cache(maxsize=1)
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


@lru_cache(maxsize=1)
def _compiler() -> ctypes.CDLL | None:
    """Return NVRTC as torch ships it or as the system has it, or None where neither is new enough."""
    version = (torch.version.cuda or "0").split(".")[0]
    packages = Path(torch.__file__).parent.parent / "nvidia"
    shipped = sorted(map(str, packages.glob(f"*/lib/libnvrtc.so.{version}")))
    for name in (*shipped, f"libnvrtc.so.{version}", "libnvrtc.so"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        major, minor = ctypes.c_int(), ctypes.c_int()
        if (
            library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0
            and major.value >= MIN_NVRTC_MAJOR
        ):
            return library
    return None


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"The CUDA driver or compiler answered {code}.")
