"""GPU kernels that only wide models use, each against another way to compute the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from ripple.models.base import ExpertsConfig, ForwardInputs
from ripple.models.experts import route, routed
from ripple.models.shapes import random_network, shape_named

EXPERT_ROWS = (32, 64, 2080)  # a block, a block and the one before it, and more than an expert's tile holds


def gap(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return |a - b| / |b|."""
    return float((a - b).norm() / b.norm())


def wide_gaps(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[str, float]]:
    """Yield each pair of kernels and their relative difference. For GPUs."""
    from ripple.models.gpu import hopper

    yield "a product that rotates, and product and rotation", _wide_rotation(device, dtype)
    yield "attention of 32 and 8 heads with limits, and the library's", limits_gap(device, dtype, 32, 8)
    if dtype != torch.bfloat16 or not hopper.is_hopper(device):
        return
    for heads, k_heads in ((8, 8), (14, 2), (32, 8), (80, 80)):  # the last fill the device: large blocks
        for stored in (True, False):
            what = f"attention of {heads} and {k_heads} heads on {'stored' if stored else 'fresh'} keys"
            yield f"{what} by both kernels", _attention_gap(device, heads, k_heads, stored)


def expert_gaps(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[str, float]]:
    """Yield what a large model's experts add by the kernel, and by the plain loop over them. For GPUs."""
    from ripple.models.gpu import experts_kernel

    shape = shape_named("llada2-mini", 1)
    assert isinstance(shape, ExpertsConfig)
    config = dataclasses.replace(shape, n_dense=0, vocab_size=1)
    model: Any = random_network(config, device, dtype)
    (layer,) = model.weights.layers
    layer.router_bias = 0.2 * torch.randn(config.n_experts, device=device)
    for n_rows in EXPERT_ROWS:
        rows = torch.randn(n_rows, config.d_model, device=device, dtype=dtype)
        pairs = experts_kernel.sorted_pairs(*route(rows, layer, config), config.n_experts)
        out = experts_kernel.routed(rows, pairs, layer.expert_gate_up, layer.expert_down)
        what = f"experts of {n_rows} rows, {pairs.rows_at_once} at once, and the plain loop"
        yield what, gap(out, routed(rows, layer, config).float())


def limits_gap(device: torch.device, dtype: torch.dtype, heads: int, k_heads: int) -> float:
    """Compare attention on stored keys, of which each row sees as many as its limit says."""
    from ripple.models.gpu import attention_kernel

    n_rows, n_keys, d = 64, 700, 128
    whole: dict[str, Any] = {"device": device, "dtype": torch.int64}
    rows, slots = torch.zeros(2, n_rows, **whole), torch.tensor([2, 0], **whole)
    limit = torch.randint(1, n_keys + 1, (2, n_rows), **whole)
    limit[0] = 1  # so that most parts of the keys are seen by no row
    inputs = ForwardInputs(rows, rows, n_rows, 0, n_keys, None, None, None, rows[0], slots=slots, limit=limit)
    qkv = torch.randn(2 * n_rows, (heads + 2 * k_heads) * d, device=device, dtype=dtype)
    k, v = torch.randn(2, 3, k_heads, n_keys, d, device=device, dtype=dtype)
    lengths = torch.full((2,), n_keys, **whole)
    out = attention_kernel.attend(qkv, k, v, slots, lengths, inputs, heads).float()
    q = qkv.view(2, n_rows, -1, d)[:, :, :heads].transpose(1, 2).float()
    sees = torch.arange(n_keys, device=device) < limit[:, None, :, None]
    keys, values = (some[slots].float().repeat_interleave(heads // k_heads, 1) for some in (k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=sees)
    return gap(out, expected.transpose(1, 2).reshape(out.shape))


def _attention_gap(device: torch.device, heads: int, k_heads: int, stored: bool) -> float:
    """Compare attention in bf16 by both of our kernels.

    That is 32 live rows and three branches on stored keys, or branches alone where all of a canvas is live.
    """
    from ripple.models.gpu import attention_hopper, attention_kernel

    w, n_keys, d = 32, 700, 128
    n_live = 32 if stored else n_keys
    n_rows = n_live + 3 * w
    whole: dict[str, Any] = {"device": device, "dtype": torch.int64}
    rows, slots = torch.zeros(2, n_rows, **whole), torch.tensor([2, 0] if stored else [0, 1], **whole)
    lo = torch.randint(n_keys - 40, (2, n_rows - n_live), **whole)
    hide, own_len = torch.stack([lo, lo + w], dim=-1), torch.tensor([[32, 30, 1], [4, 32, 32]], **whole)
    inputs = ForwardInputs(rows, rows, n_live, w, n_keys, None, hide, own_len, rows[0], slots=slots)
    qkv = torch.randn(2 * n_rows, (heads + 2 * k_heads) * d, device=device, dtype=torch.bfloat16)
    lengths = torch.tensor([n_keys, n_keys - 90], **whole)
    if stored:
        k, v = torch.randn(2, 3, k_heads, n_keys, d, device=device, dtype=torch.bfloat16)
    else:
        live = qkv.view(2, n_rows, -1, d)[:, :n_live, heads:].transpose(1, 2)
        k, v = live[:, :k_heads], live[:, k_heads:]
    for some in (k, v):
        some[slots[1], :, n_keys - 90 :] = torch.nan  # behind the end of the second canvas
    outs = [torch.zeros(2 * n_rows, heads * d, device=device, dtype=torch.bfloat16) for _ in range(2)]
    for by, out in zip((attention_hopper, attention_kernel), outs, strict=True):
        by.attend(qkv, k, v, slots, lengths, inputs, heads, 0 if stored else n_live, out)
    return gap(outs[0].float(), outs[1].float())


def _wide_rotation(device: torch.device, dtype: torch.dtype) -> float:
    """Compare queries and stored keys of 64 rows by the fused kernel of wide models and by the usual two.

    The test suite compares them in Triton's interpreter.
    """
    from ripple.models.fp8 import FP8, quantised
    from ripple.models.gpu import fast_fp8, fp8_kernels, kernels, skinny

    n_rows, n_heads, k_heads, d, inner = 64, 64, 32, 128, 512
    how: dict[str, Any] = {"device": device, "dtype": torch.bfloat16 if dtype == FP8 else dtype}
    x, weight = torch.randn(n_rows, inner, **how), torch.randn((n_heads + 2 * k_heads) * d, inner, **how)
    cos, sin = torch.randn(2, 256, d, device=device)
    pos = torch.arange(n_rows, device=device)[None] * 4
    slots = torch.ones(1, dtype=torch.int64, device=device)
    assert skinny.can_rotate(n_rows, weight, d)
    scales = None
    if dtype == FP8:
        (x, row_scale), (weight, scale) = fp8_kernels.quantise(x), quantised(weight)
        scales = row_scale, scale, None
    both = []
    for fused in (True, False):
        k, v = torch.zeros(2, 2, k_heads, 256, d, **how)
        turn = kernels.Rotation(
            pos, cos, sin, (k, v), slots, 32, n_heads, d, in_fp32=True, scales=scales
        )  # fmt: skip
        if fused:
            qkv = skinny.rotated_qkv(x, weight, None, turn)
        else:
            qkv = fast_fp8.sums(x, weight, how["dtype"]) if dtype == FP8 else x @ weight.t()
            kernels.rotate_and_store(qkv, turn)
        both.append(torch.cat([qkv.flatten(), k.flatten(), v.flatten()]).float())
    return gap(*both)


def fp8_gaps(device: torch.device) -> Iterator[tuple[str, float]]:
    """Yield products of e4m3 numbers at a large model's width, and the same of what the numbers stand for."""
    from ripple.models.fp8 import FP8, dequantised, quantised
    from ripple.models.gpu import fp8_kernels, skinny
    from ripple.models.gpu.fast_fp8 import sums

    yield "a product that rotates, and product and rotation", _wide_rotation(device, FP8)
    how: dict[str, Any] = {"device": device, "dtype": torch.bfloat16}
    weight, scale = quantised(torch.randn(8192, 4096, **how) * torch.rand(8192, 1, **how))
    for n_rows in (16, 32, 64, 96, 160, 1256):
        rows = fp8_kernels.quantise(torch.randn(n_rows, 4096, **how) * torch.rand(n_rows, 1, **how))
        by = rows.scale[:, None] * scale[:, 0]
        exact = dequantised(rows.numbers, rows.scale[:, None]) @ dequantised(weight, scale).t()
        yield (
            f"the library's product of {n_rows} rows, and the plain one",
            gap(sums(rows.numbers, weight, torch.bfloat16) * by, exact),
        )
        if skinny.fits(n_rows, weight):
            parts = skinny.linear_parts(rows.numbers, weight)
            yield f"our product of {n_rows} rows, and the plain one", gap(parts.sum(0) * by, exact)
            gate, up = exact.chunk(2, dim=-1)
            gated = skinny.gated(rows.numbers, weight, (rows.scale, scale), torch.bfloat16)
            expected = torch.nn.functional.silu(gate) * up
            yield f"our gated product of {n_rows} rows, and the plain one", gap(gated.float(), expected)
