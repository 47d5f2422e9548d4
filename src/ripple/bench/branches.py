"""Which of the two equal ways to attend from branches is faster on this device.

Run: `ripple bench branches --device cuda`. The winner is `Transformer.split_branches` for that device type.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from ripple.models.attention import attend_branches_masked, attend_branches_split, visibility
from ripple.models.forward import Forward
from ripple.models.load import torch_device

HEADS = {"llada-8b": (32, 32), "dream-7b": (28, 4)}
HEAD_DIM, WINDOW = 128, 32
ROUNDS = 15


def measure(device: str = "auto", n_keys: int = 1256) -> dict[str, Any]:
    """Time both ways, alternating, for both head layouts, 4 and 10 branches, batch 1 and 8."""
    target = torch_device(device)
    dtype = torch.bfloat16 if target.type == "cuda" else torch.float32
    rows = []
    for shape, (heads, kv_heads) in HEADS.items():
        for n_branches in (4, 10):
            for batch in (1, 8):
                times = _race(target, dtype, heads, kv_heads, n_branches, batch, n_keys)
                rows.append({"shape": shape, "branches": n_branches, "batch": batch, **times})
    return {"bench": "branches", "device": str(target), "n_keys": n_keys, "rows": rows}


def _race(
    device: torch.device, dtype: torch.dtype, heads: int, kv_heads: int, g: int, s: int, n: int
) -> dict[str, float]:
    """Return the median milliseconds of one layer's branch attention, split and masked."""

    def new(n_heads: int, n_rows: int) -> torch.Tensor:
        return torch.randn(s, n_heads, n_rows, HEAD_DIM, device=device, dtype=dtype)

    q, k, v = new(heads, g * WINDOW), new(kv_heads, n), new(kv_heads, n)
    k_own, v_own = new(kv_heads, g * WINDOW), new(kv_heads, g * WINDOW)
    ids = torch.zeros(s, n + g * WINDOW, dtype=torch.long, device=device)
    hidden = torch.tensor([n - 64, n - 32], device=device).expand(s, g * WINDOW, 2)
    fwd = Forward(ids, ids, n, WINDOW, n, None, hidden, None, ids[0, :0])
    by_split, by_mask = visibility(fwd, True), visibility(fwd, False)
    ways: dict[str, Callable[[], torch.Tensor]] = {
        "split_ms": lambda: attend_branches_split(q, k, v, k_own, v_own, by_split, WINDOW),
        "masked_ms": lambda: attend_branches_masked(q, k, v, k_own, v_own, by_mask),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS + 3):
        for name, way in ways.items():
            _wait(device)
            start = time.perf_counter()
            way()
            _wait(device)
            if number >= 3:  # the first rounds warm up
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: round(statistics.median(values), 4) for name, values in times.items()}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
