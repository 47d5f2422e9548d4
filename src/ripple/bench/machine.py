"""What this machine can do at best, measured, and what a forward costs at least: the two sides of a roofline.

Arithmetic per forward, for q rows that each see k keys, h rows read by the head, and c canvases:
  operations = 2 P q + 4 L H D q k + 2 V d h
  bytes      = weights + 4 L K D k c (keys and values, once per canvas) + 2 V h (logits)

Of experts, P counts those that a row goes to, and the weights those that some row goes to. In fp8 the layers'
products run at the speed of fp8 and their weights have one byte; head, attention and keys stay as they are.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ripple.models.base import ExpertsConfig, ModelConfig

BF16, FP8 = 2, 1  # bytes
CYCLES_PER_MS = 2_000_000  # at least, on today's GPUs


@dataclass(frozen=True)
class Ceilings:
    """The two measured limits of a device."""

    copy_tb_s: float  # device to device, bytes read plus bytes written
    matmul_tflop_s: float  # 8,192 cubed in bf16, random data
    fp8_tflop_s: float | None = None  # the same in e4m3, summed as the network sums; None: not measured

    def as_line(self) -> dict[str, Any]:
        """Return the limits as plain values."""
        return {name: round(value, 3) for name, value in asdict(self).items() if value is not None}


def ceilings(device: torch.device, with_fp8: bool = False) -> Ceilings:
    """Measure a large copy and a large matrix product, perhaps in fp8 too."""
    fp8 = _fp8_tflop_s() if with_fp8 and device.type == "cuda" else None
    return Ceilings(_copy_tb_s(device), _matmul_tflop_s(device), fp8)


def _copy_tb_s(device: torch.device) -> float:
    n = 1 << (30 if device.type == "cuda" else 22)
    source = torch.randn(n, device=device, dtype=torch.bfloat16)
    target = torch.empty_like(source)
    return 2 * source.nbytes / device_ms(lambda: target.copy_(source), device) / 1e9


def _matmul_tflop_s(device: torch.device) -> float:
    n = 8192 if device.type == "cuda" else 256
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    return 2 * n**3 / device_ms(lambda: a @ b, device) / 1e9


def _fp8_tflop_s() -> float:
    from ripple.models.gpu.fast_fp8 import sums

    n, device = 8192, torch.device("cuda")
    a, b = (torch.randn(n, n, device=device).to(torch.float8_e4m3fn) for _ in range(2))
    return 2 * n**3 / device_ms(lambda: sums(a, b, torch.bfloat16), device) / 1e9


def device_ms(work: Callable[[], Any], device: torch.device, n: int = 10) -> float:
    """Return the device's time for one call of `work` in milliseconds: calls queue up, gaps vanish."""
    work()
    if device.type != "cuda":
        start = time.perf_counter()
        for _ in range(3):
            work()
        return (time.perf_counter() - start) / 3 * 1e3
    times: list[float] = []
    for _ in range(3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        begin.record()
        for _ in range(n):
            work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / n)
    return statistics.median(times)


def queued_ms(work: Callable[[], Any], device: torch.device, pause_ms: float, n: int = 5) -> float:
    """Return the device's time for one call: the device is kept busy until all of the call is queued."""
    if device.type != "cuda":
        return device_ms(work, device)
    times: list[float] = []
    for _ in range(n):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        torch.cuda._sleep(int(pause_ms * CYCLES_PER_MS))  # type: ignore[no-untyped-call]
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def roof_ms(
    config: ModelConfig, limits: Ceilings, n_rows: int, n_keys: float, n_head: int, n_canvases: int,
    dtype: str = "bf16", n_pairs: float | None = None, n_experts: float | None = None,
) -> float:  # fmt: skip
    """Return the least time of a forward in milliseconds: the larger of its arithmetic and its traffic.

    `n_pairs` of a row and a key it sees, where not every row sees every key; `n_experts` that some row goes
    to, in the mean of the layers, where it was counted.
    """
    c = config
    per_row, read = _layer_weights(c, n_rows, n_experts)
    head = c.vocab_size * c.d_model
    pairs = n_rows * n_keys if n_pairs is None else n_pairs
    products = 2 * per_row * n_rows
    others = 4 * c.n_layers * c.n_heads * c.head_dim * pairs + 2 * head * n_head
    keys = 2 * c.n_layers * c.n_kv_heads * c.head_dim * n_keys * n_canvases
    is_fp8 = dtype == "fp8"
    speed = limits.fp8_tflop_s if is_fp8 and limits.fp8_tflop_s else limits.matmul_tflop_s
    traffic = (FP8 if is_fp8 else BF16) * read + BF16 * (head + keys + c.vocab_size * n_head)
    return max(products / speed + others / limits.matmul_tflop_s, traffic / limits.copy_tb_s) / 1e9


def _layer_weights(config: ModelConfig, n_rows: int, n_experts: float | None) -> tuple[float, float]:
    """Return how many of the layers' weights one row is multiplied with, and how many are read."""
    c = config
    attention = (c.n_heads * 2 + c.n_kv_heads * 2) * c.head_dim * c.d_model
    dense = attention + 3 * c.d_ff * c.d_model
    if not isinstance(c, ExpertsConfig):
        return c.n_layers * dense, c.n_layers * dense
    if n_experts is None:  # rows that choose independently of each other
        n_experts = c.n_experts * (1 - (1 - c.n_chosen / c.n_experts) ** n_rows)
    expert, n_sparse = 3 * c.expert_ff * c.d_model, c.n_layers - c.n_dense
    shared = attention + c.n_experts * c.d_model + c.n_shared * expert
    per_row = c.n_dense * dense + n_sparse * (shared + c.n_chosen * expert)
    return per_row, c.n_dense * dense + n_sparse * (shared + n_experts * expert)
