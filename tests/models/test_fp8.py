"""fp8: how numbers are rounded, and the kernels against the plain network, run by Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ripple.caches import Cache, DualCache, NoCache, PrefixCache
from ripple.decoders import Decoder, Lopa, Wino
from ripple.engine.engine import Engine
from ripple.errors import RippleError
from ripple.models.base import ModelConfig
from ripple.models.dense import Fp8Layer
from ripple.models.fp8 import (
    FP8,
    LARGEST,
    Fp8Transformer,
    dequantised,
    fill_quantised,
    quantised,
    with_activations,
)
from ripple.models.shapes import SHAPES, random_network
from ripple.models.transformer import rms_norm
from tests.models.test_experts import CONFIG as OF_EXPERTS
from tests.models.test_kernels import IDS, SMALL, close, hidden_of

pytest.importorskip("triton", reason="Triton is not installed")
from ripple.models.gpu import fp8_kernels, kernels, skinny
from ripple.models.gpu.fast_fp8 import FastFp8Transformer, sums

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)


def awkward(n: int, k: int) -> torch.Tensor:
    """Rows of very different sizes, one of zeros; within a row numbers down to the subnormal ones."""
    x = torch.randn(n, k) * torch.logspace(-7, 7, n)[:, None] * torch.logspace(-5, 0, k)
    x[n // 2] = 0
    return x


# -- rounding -------------------------------------------------------------------------------------------


def test_a_rows_largest_number_becomes_448_and_none_is_off_by_more_than_half_a_step() -> None:
    x = awkward(9, 200)
    numbers, scale = quantised(x)
    assert numbers.dtype == FP8 and scale.shape == (9, 1) and scale.dtype == torch.float32
    is_zero = torch.arange(9) == 4
    assert (numbers.float().abs().amax(1)[~is_zero] == LARGEST).all() and not numbers[is_zero].float().any()
    # Three bits behind the point: at most 1/16 off, or half of the smallest number 2^-9.
    off = (dequantised(numbers, scale) - x).abs()
    assert (off <= torch.maximum(x.abs() / 16, scale * 2**-10) * (1 + 1e-6)).all()


def test_what_is_quantised_is_quantised_to_itself() -> None:
    numbers, scale = quantised(awkward(9, 200))
    again, same = quantised(dequantised(numbers, scale))
    assert torch.equal(again.float(), numbers.float()) and close(same[scale > 1e-12], scale[scale > 1e-12])


def test_numbers_that_are_not_finite_stay_so() -> None:
    for wrong in (torch.nan, torch.inf):
        x = torch.randn(3, 8)
        x[1, 3] = wrong
        numbers, scale = quantised(x)
        assert (
            not dequantised(numbers, scale)[1].isfinite().all() and numbers.float()[[0, 2]].isfinite().all()
        )


def test_each_channel_has_a_scale_of_its_own() -> None:
    values = torch.randn(6, 32) * torch.logspace(-3, 3, 6)[:, None]
    places = {"w": torch.empty(6, 32, dtype=FP8), "w_scale": torch.empty(6, 1)}
    for first in (0, 4):
        fill_quantised("w", places, values[first : first + 4], first)
    rounded = dequantised(places["w"], places["w_scale"])
    assert all(close(rounded[i], values[i], 0.04) for i in range(6))


# -- kernels --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernel_quantises_bit_for_bit_as_the_plain_code(dtype: torch.dtype) -> None:
    x = awkward(9, 200).to(dtype)
    rows, (numbers, scale) = fp8_kernels.quantise(x), quantised(x)
    assert torch.equal(rows.numbers.float(), numbers.float()) and torch.equal(rows.scale, scale[:, 0])


def some_sums(n: int, d: int, n_parts: int) -> tuple[fp8_kernels.Fp8Sums, torch.Tensor]:
    """Sums, and what they stand for."""
    parts, row_scale, channel_scale = torch.randn(n_parts, n, d), torch.rand(n), torch.rand(d, 1)
    total = parts.sum(0) * row_scale[:, None] * channel_scale[:, 0]
    return fp8_kernels.Fp8Sums(parts, row_scale, channel_scale), total


def test_normalising_adds_sums_times_their_scales_and_quantises() -> None:
    x, weight = torch.randn(5, 48), torch.randn(48)
    made, total = some_sums(5, 48, 3)
    expected = rms_norm(x + total, weight, 1e-5)
    after = x.clone()
    rows = fp8_kernels.add_norm(after, made, weight, 1e-5)
    assert close(after, x + total)
    assert close(dequantised(rows.numbers, rows.scale[:, None]), dequantised(*quantised(expected)), 3e-3)
    assert close(fp8_kernels.last_norm(x.clone(), made, weight, 1e-5), expected)
    again = fp8_kernels.add_norm(after.clone(), None, weight, 1e-5)
    assert torch.equal(again.numbers.float(), rows.numbers.float())


@pytest.mark.parametrize("most_held", [16384, 1024])  # rows held in registers, computed twice
@pytest.mark.parametrize("d_ff", [40, 5000])
def test_gating_multiplies_by_the_scales_and_quantises(
    d_ff: int, most_held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fp8_kernels, "MOST_HELD", most_held)
    made, total = some_sums(3, 2 * d_ff, 1)
    gate, up = total.chunk(2, dim=-1)
    rows = fp8_kernels.silu_mul(made.parts[0], made.row_scale, made.channel_scale, torch.float32)
    expected = dequantised(*quantised(F.silu(gate) * up))
    assert close(dequantised(rows.numbers, rows.scale[:, None]), expected, 3e-3)


@pytest.mark.parametrize("n_rows", [16, 48, 64])
def test_products_of_few_fp8_rows_equal_the_plain_ones(n_rows: int) -> None:
    x, weight = torch.randn(n_rows, 512), torch.randn(128, 512)
    rows, (numbers, scale) = fp8_kernels.quantise(x), quantised(weight)
    expected = F.linear(dequantised(*quantised(x)), dequantised(numbers, scale))
    if skinny.fits(n_rows, weight):
        parts = skinny.linear_parts(rows.numbers, numbers)
        assert len(parts) > 1 and close(parts.sum(0) * rows.scale[:, None] * scale[:, 0], expected)
        gate, up = expected.chunk(2, dim=-1)
        assert close(
            skinny.gated(rows.numbers, numbers, (rows.scale, scale), torch.float32), F.silu(gate) * up
        )
    assert close(sums(rows.numbers, numbers, torch.float32) * rows.scale[:, None] * scale[:, 0], expected)


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("n_rows", [16, 20])
@pytest.mark.parametrize("rotary_dim", [64, 32])
def test_queries_keys_and_values_get_their_scales_before_they_are_rotated(
    n_rows: int, rotary_dim: int, has_bias: bool
) -> None:
    n_heads, k_heads, d, n_live = 4, 2, 64, 10
    x, weight = torch.randn(n_rows, 256), torch.randn((n_heads + 2 * k_heads) * d, 256)
    bias = torch.randn(len(weight)) if has_bias else None
    rows, (numbers, scale) = fp8_kernels.quantise(x), quantised(weight)
    pos, slots = torch.randperm(40)[None, :n_rows], torch.tensor([1])
    cos, sin = torch.randn(2, 40, rotary_dim)
    stores = torch.zeros(3, 2, 2, k_heads, 40, d)  # [way, k or v, slots, ...]
    turns = [kernels.Rotation(pos, cos, sin, (k, v), slots, n_live, n_heads, d, True) for k, v in stores]

    plain = F.linear(dequantised(*quantised(x)), dequantised(numbers, scale), bias)
    kernels.rotate_and_store(plain, turns[0])
    scales = rows.scale, scale, bias
    apart = sums(rows.numbers, numbers, torch.float32)
    kernels.rotate_and_store(apart, turns[1]._replace(scales=scales))
    assert close(apart, plain) and close(stores[1], stores[0])
    unstored = sums(rows.numbers, numbers, torch.float32)
    kernels.rotate_and_store(unstored, turns[1]._replace(scales=scales, stores=None))
    assert torch.equal(unstored, apart)
    if rotary_dim == d and skinny.fits(n_rows, numbers):
        fused = skinny.rotated_qkv(rows.numbers, numbers, bias, turns[2]._replace(scales=scales))
        assert close(fused, plain) and close(stores[2], stores[0])


# -- the network ----------------------------------------------------------------------------------------


def in_fp32(config: ModelConfig) -> Fp8Transformer:
    """An fp8 network whose activations are fp32, so that only e4m3 numbers are rounded."""
    model: Any = random_network(config, CPU, FP8)
    return Fp8Transformer(config, with_activations(model.weights, torch.float32))


@pytest.mark.parametrize(
    ("shape", "kv_heads", "cache", "decoder", "prompts"),
    [
        ("llada-8b", 4, NoCache(), Lopa(k=2), (5, 9)),
        ("dream-7b", 2, NoCache(), Lopa(k=2), (5, 5)),  # of one length: the library's attention takes part
        ("llada-8b", 4, DualCache(), Wino(tau1=0.05, tau2=0.03), (5, 9)),
        ("dream-7b", 2, PrefixCache(), Lopa(k=2), (5, 9)),
    ],
)
def test_the_fp8_network_with_kernels_equals_the_plain_one(
    shape: str, kv_heads: int, cache: Cache, decoder: Decoder, prompts: tuple[int, int]
) -> None:
    config = replace(SHAPES[shape], n_kv_heads=kv_heads, **SMALL, **IDS)  # type: ignore[arg-type]
    plain = in_fp32(config)
    with_kernels = FastFp8Transformer(config, plain.weights)
    engine = Engine(plain)
    how = {"decoder": decoder, "length": 12, "block": 4, "cache": cache}
    requests = [engine.submit(list(range(3, 3 + n)), **how) for n in prompts]  # type: ignore[arg-type]
    for _ in range(3):  # the opening forward, then some that look ahead
        engine.tick()
        asking = [request for request in requests if request.ask is not None]
        assert asking, "the decoder was done too soon to compare anything"
        by_plain = hidden_of(engine, plain, [request.build_layout("packed") for request in asking])
        by_fast = hidden_of(engine, with_kernels, [request.build_layout("packed") for request in asking])
        assert close(by_fast, by_plain, 3e-3), float((by_fast - by_plain).norm() / by_plain.norm())


@pytest.mark.parametrize("name", ["qkv", "out", "gate_up", "down"])
def test_products_of_forwards_that_run_plainly_on_a_gpu_are_the_plain_ones(name: str) -> None:
    plain = in_fp32(replace(SHAPES["dream-7b"], n_kv_heads=2, **SMALL, **IDS))  # type: ignore[arg-type]
    layer = plain.weights.layers[1]
    matrix = getattr(layer, name)
    x, bias = torch.randn(2, 3, matrix.shape[1]), torch.randn(len(matrix))
    by_fast = FastFp8Transformer(plain.config, plain.weights).product(layer, name, x, bias)
    assert by_fast.shape == (2, 3, len(matrix)) and close(by_fast, plain.product(layer, name, x, bias))


def test_a_random_fp8_network_is_the_quantised_bf16_one_of_the_same_seed() -> None:
    config = replace(SHAPES["dream-7b"], n_kv_heads=2, **SMALL, **IDS)  # type: ignore[arg-type]
    of_bf16: Any = random_network(config, CPU, torch.bfloat16)
    of_fp8: Any = random_network(config, CPU, FP8)
    assert of_fp8.dtype == torch.bfloat16 and of_fp8.matrix_dtype == FP8
    assert torch.equal(of_fp8.weights.embed, of_bf16.weights.embed)
    for one, other in zip(of_fp8.weights.layers, of_bf16.weights.layers, strict=True):
        assert isinstance(one, Fp8Layer)
        numbers, scale = quantised(other.gate_up)
        assert torch.equal(one.gate_up.float(), numbers.float()) and torch.equal(one.gate_up_scale, scale)


def test_models_with_experts_are_refused() -> None:
    with pytest.raises(RippleError, match="fp8 is for dense models, but those of the family llada2"):
        random_network(OF_EXPERTS, CPU, FP8)
