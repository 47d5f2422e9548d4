"""Which tile the attention kernel should use on this GPU: every candidate timed on the usual forwards.

Run on a GPU: `ripple bench tiles`. The winners belong into `tile_for` of models/gpu/attention_kernel.py.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import Any

import torch

from ripple.errors import RippleError
from ripple.fields import param
from ripple.measurement import Measurement, listed
from ripple.models.base import ForwardInputs, ModelConfig
from ripple.models.load import torch_device
from ripple.models.shapes import SHAPES, shape_named

N_KEYS, BLOCK = 1256, 32
FORWARDS = ((32, 0), (32, 1), (32, 2), (32, 4), (32, 8), (128, 0), (128, 4))  # (live rows, branches)
# rows, keys, warps, pipeline stages
TILES = tuple(itertools.product((16, 32, 64, 128), (32, 64, 128), (4, 8), (2, 3, 4)))
PROGRAMS = (132, 264, 528)  # how many programs the keys are split for
N_COPIES = 6  # key stores used in turn, so that keys come from memory and not from the cache


@dataclass(frozen=True)
class Tiles(Measurement):
    """Time every tile of the attention kernel on the usual forwards, on a GPU; print the fastest of each."""

    name = "tiles"

    device: str = param("auto", "cuda, cuda:N or auto")
    shapes: str = param(",".join(SHAPES), "released shapes, joined by commas")
    seconds: float = param(60.0, "for at most this long", within="(0, inf)")

    def run(self) -> dict[str, Any]:
        """Time every tile on every forward; return the three fastest of each."""
        target = torch_device(self.device)
        if target.type != "cuda":
            raise RippleError("Benchmark tiles times a GPU kernel; this machine has no usable CUDA GPU.")
        start, rows = time.perf_counter(), []
        work = [(shape, *forward) for shape in listed(self.shapes) for forward in FORWARDS]
        for number, (shape, n_live, n_branches) in enumerate(work):
            until = start + self.seconds * (number + 1) / len(work)
            times = _race(shape_named(shape), n_live, n_branches, target, until)
            for ms, tile, programs in sorted(times)[:3]:
                rows.append(
                    {"shape": shape, "live": n_live, "branches": n_branches, "us": round(1e3 * ms, 1),
                     "tile": tile, "programs": programs, "tried": len(times)}
                )  # fmt: skip
        return {"bench": self.name, "device": torch.cuda.get_device_name(target), "rows": rows}


def _race(
    config: ModelConfig, n_live: int, n_branches: int, device: torch.device, until: float
) -> list[tuple[float, tuple[int, ...], int]]:
    """Return the time of each tile and number of programs, as far as time allows."""
    from triton.testing import do_bench_cudagraph  # by graph: these kernels are shorter than their launch

    from ripple.models.gpu.attention_kernel import Tile, attend

    inputs, stores, qkv, slots, key_len = _inputs(config, n_live, n_branches, device)
    times: list[tuple[float, tuple[int, ...], int]] = []
    for sizes, programs in itertools.product(TILES, PROGRAMS):
        if time.perf_counter() > until:
            break
        tile, turn = Tile(*sizes), itertools.cycle(stores)

        def work(tile: Tile = tile, turn: Any = turn, programs: int = programs) -> None:
            k, v = next(turn)
            how: dict[str, Any] = {"tile": tile, "n_programs_wanted": programs}
            attend(qkv, k, v, slots, key_len, inputs, config.n_heads, **how)

        try:
            times.append((float(do_bench_cudagraph(work, rep=5)), sizes, programs))
        except Exception as error:  # a tile that needs more memory than a multiprocessor has
            if "resource" not in str(error):
                raise
    return times


def _inputs(config: ModelConfig, n_live: int, n_branches: int, device: torch.device) -> tuple[Any, ...]:
    """Return random tensors of one layer's attention: forward, stores, q-k-v, slots, lengths."""
    n_rows = n_live + n_branches * BLOCK

    def ints(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.int64, device=device)

    hide = ints(1, n_branches * BLOCK, 2)
    hide[..., 0], hide[..., 1] = 1100, 1100 + BLOCK
    inputs = ForwardInputs(
        ids=ints(1, n_rows),
        pos=ints(1, n_rows),
        n_live=n_live,
        branch_len=BLOCK if n_branches else 0,
        n_keys=1280,
        key_len=None,
        hide=hide if n_branches else None,
        own_len=ints(1, n_branches) + BLOCK if n_branches else None,
        read=ints(1),
    )
    kv_shape = (1, config.n_kv_heads, 1280, config.head_dim)
    width = (config.n_heads + 2 * config.n_kv_heads) * config.head_dim
    how: dict[str, Any] = {"device": device, "dtype": torch.bfloat16}
    stores = [(torch.randn(kv_shape, **how), torch.randn(kv_shape, **how)) for _ in range(N_COPIES)]
    return inputs, stores, torch.randn(n_rows, width, **how), ints(1), ints(1) + N_KEYS
