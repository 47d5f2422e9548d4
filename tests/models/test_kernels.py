"""The GPU kernels against the plain code, run on the CPU by Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ripple.caches import Cache, DualCache, NoCache, PrefixCache
from ripple.decoders import Decoder, Lopa, Wino
from ripple.engine.engine import Engine
from ripple.engine.layout import AskLayout
from ripple.models.base import ForwardInputs
from ripple.models.shapes import SHAPES, random_network
from ripple.models.transformer import Transformer, rms_norm

pytest.importorskip("triton", reason="Triton is not installed")
from ripple.models.gpu import attention_kernel, fast, kernels, skinny
from ripple.models.gpu.fast import FastTransformer

SMALL = {"d_model": 32, "n_layers": 2, "n_heads": 4, "head_dim": 16, "d_ff": 32, "vocab_size": 200}
IDS = {"mask_id": 199, "end_ids": (198,), "max_positions": 256}


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-5) -> bool:
    return float((a.float() - b.float()).norm() / b.float().norm()) < tolerance


def test_normalising_adds_the_parts_first_and_keeps_the_sum() -> None:
    x, parts, weight = torch.randn(5, 48), torch.randn(3, 5, 48), torch.randn(48)
    total = x + parts.sum(0)
    assert close(kernels.add_norm(x, parts, weight, 1e-5), rms_norm(total, weight, 1e-5))
    assert close(x, total)
    assert close(kernels.add_norm(x, None, weight, 1e-5), rms_norm(total, weight, 1e-5))


@pytest.mark.parametrize("n_rows", [16, 48, 64])
def test_products_for_few_rows_equal_the_librarys(n_rows: int) -> None:
    x, weight = torch.randn(n_rows, 256), torch.randn(128, 256)
    assert skinny.fits(n_rows, weight) == (n_rows != 48) and not skinny.fits(n_rows + 1, weight)
    parts = skinny.linear_parts(x, weight)
    assert len(parts) > 1 and close(parts.sum(0), F.linear(x, weight))
    gate, up = F.linear(x, weight).chunk(2, dim=-1)
    assert close(skinny.gated(x, weight), F.silu(gate) * up)
    assert close(kernels.silu_mul(F.linear(x, weight)), F.silu(gate) * up)


@pytest.mark.parametrize(("n_rows", "k_dtype"), [(16, 2), (32, 2), (64, 2), (64, 1)])
def test_tiles_in_flight_fit_a_gpus_shared_memory(
    monkeypatch: pytest.MonkeyPatch, n_rows: int, k_dtype: int
) -> None:
    """Five tiles of 64 rows take 160 KB, which Hopper has and most other GPUs have not."""
    dtype = torch.bfloat16 if k_dtype == 2 else torch.float8_e4m3fn
    x, weight = torch.empty(n_rows, 2048, dtype=dtype), torch.empty(64, 2048, dtype=dtype)
    for has, least in ((232_448, 5), (skinny.SMALLEST_SHARED_BYTES, 3)):
        monkeypatch.setattr(skinny, "_shared_bytes", lambda _, has=has: has)
        how = skinny._how(x, weight, 2048, 5, skinny.SPLIT)
        used = how["num_stages"] * (64 + (32 if n_rows <= 32 else 64)) * how["BK"] * k_dtype
        assert used <= has and how["num_stages"] >= least


def test_a_product_in_halves_is_still_to_be_added_up() -> None:
    x, y, weight = torch.randn(5, 48), torch.randn(5, 64), torch.randn(48, 64)
    parts = fast._add_product(x, y, weight)
    assert parts is not None and len(parts) == 2 and close(parts.sum(0), F.linear(y, weight))
    before, many = torch.randn(fast.HALVED_ROWS + 1, 48), torch.randn(fast.HALVED_ROWS + 1, 64)
    after = before.clone()
    assert fast._add_product(after, many, weight) is None
    assert close(after, before + F.linear(many, weight))


def test_a_product_in_halves_of_its_columns_is_the_product() -> None:
    x, weight = torch.randn(5, 64), torch.randn(48, 64)
    assert close(fast._wide_halves(x, weight), F.linear(x, weight))


@pytest.mark.parametrize("in_fp32", [True, False])
@pytest.mark.parametrize(("n_canvases", "n_heads", "k_heads", "d"), [(1, 4, 2, 64), (2, 2, 2, 128)])
def test_a_product_that_rotates_equals_the_product_and_the_rotation(
    n_canvases: int, n_heads: int, k_heads: int, d: int, in_fp32: bool
) -> None:
    n_rows, n_live, n_positions = 16, 10, 40
    width = (n_heads + 2 * k_heads) * d
    x, weight, bias = torch.randn(n_canvases * n_rows, 256), torch.randn(width, 256), torch.randn(width)
    pos = torch.stack([torch.randperm(n_positions)[:n_rows] for _ in range(n_canvases)])
    cos, sin = torch.randn(2, n_positions, d)
    stores = torch.zeros(2, 2, 3, k_heads, n_positions, d)  # [way, k or v, slots, ...]
    slots = torch.tensor([2, 0])[:n_canvases]
    turns = [kernels.Rotation(pos, cos, sin, (k, v), slots, n_live, n_heads, d, in_fp32) for k, v in stores]
    fused = skinny.rotated_qkv(x, weight, bias, turns[0])
    plain = F.linear(x, weight, bias)
    kernels.rotate_and_store(plain, turns[1])
    assert close(fused, plain) and close(stores[0], stores[1])
    assert stores[0].count_nonzero() == 2 * n_canvases * n_live * k_heads * d
    without = F.linear(x, weight, bias)
    kernels.rotate_and_store(without, turns[1]._replace(stores=None))
    assert torch.equal(without, plain)


@pytest.mark.parametrize("in_fp32", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rotary_dim", [16, 8])
@pytest.mark.parametrize(("has_norms", "has_scale"), [(True, False), (False, True), (True, True)])
def test_heads_are_normalised_rotated_in_part_and_scaled_as_by_the_plain_network(
    dtype: torch.dtype, in_fp32: bool, rotary_dim: int, has_norms: bool, has_scale: bool
) -> None:
    n_heads, k_heads, d, n = 4, 2, 16, 6
    qkv, pos = torch.randn(n, (n_heads + 2 * k_heads) * d).to(dtype), torch.arange(n)[None]
    cos, sin = torch.randn(2, n, rotary_dim // 2).to(torch.float32 if in_fp32 else dtype).repeat(1, 1, 2)
    norms = (torch.rand(d) + 0.5).to(dtype), (torch.rand(d) + 0.5).to(dtype)
    scale = (torch.rand(n) + 1).to(dtype) if has_scale else None
    q, k, v = qkv.view(n, -1, d).split([n_heads, k_heads, k_heads], dim=1)
    model: Any = SimpleNamespace(config=SimpleNamespace(rope_fp32=in_fp32))
    if has_norms:
        q, k = rms_norm(q, norms[0], 1e-6), rms_norm(k, norms[1], 1e-6)
    q, k = (Transformer._rotate(model, x, cos[:, None], sin[:, None]) for x in (q, k))
    q = q if scale is None else q * scale[:, None, None]
    expected = torch.cat([q, k, v], dim=1).clone()

    stores, slots = torch.zeros(2, 1, k_heads, n, d, dtype=dtype), torch.zeros(1, dtype=torch.int64)
    where = (pos, cos, sin, (stores[0], stores[1]), slots, n, n_heads, d, in_fp32)
    rotation = kernels.Rotation(*where, norms if has_norms else None, 1e-6, scale)
    assert not rotation.is_plain
    kernels.rotate_and_store(qkv, rotation)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2  # the interpreter cuts where bf16 rounds
    assert close(qkv.view(n, -1, d), expected, tolerance)
    assert close(stores[0, 0].transpose(0, 1), expected[:, n_heads : n_heads + k_heads], tolerance)
    assert torch.equal(stores[1, 0].transpose(0, 1), v)


def dense_attention(
    qkv: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor, n_keys: torch.Tensor,
    fwd: ForwardInputs, n_heads: int,
) -> torch.Tensor:  # fmt: skip
    """Attend row by row, from the definition of what a row sees."""
    s, t = fwd.pos.shape
    kv_heads, d, r, w = k.shape[1], k.shape[3], fwd.n_live, fwd.branch_len
    x, out = qkv.view(s, t, -1, d), torch.zeros(s, t, n_heads, d)
    for c in range(s):
        for row in range(t):
            for h in range(n_heads):
                kv, n = h * kv_heads // n_heads, int(n_keys[c])
                keys, values = k[slots[c], kv, :n], v[slots[c], kv, :n]
                if fwd.limit is not None:
                    n = min(n, int(fwd.limit[c, row]))
                    keys, values = keys[:n], values[:n]
                if row >= r:
                    assert fwd.hide is not None and fwd.own_len is not None
                    lo, hi = fwd.hide[c, row - r].tolist()
                    seen = (torch.arange(n) < lo) | (torch.arange(n) >= hi)
                    branch = (row - r) // w
                    own = slice(r + branch * w, r + branch * w + int(fwd.own_len[c, branch]))
                    keys = torch.cat([keys[seen], x[c, own, n_heads + kv]])
                    values = torch.cat([values[seen], x[c, own, n_heads + kv_heads + kv]])
                out[c, row, h] = torch.softmax(keys @ x[c, row, h] * d**-0.5, dim=0) @ values
    return out.reshape(s * t, -1)


@pytest.mark.parametrize(
    ("s", "r", "g", "w", "n", "kv_heads", "first"),
    [(2, 5, 3, 4, 70, 2, 0), (1, 33, 0, 0, 100, 1, 0), (2, 40, 2, 4, 40, 4, 40), (1, 8, 2, 33, 90, 1, 0)],
)
@pytest.mark.parametrize(("split", "limited"), [(False, False), (True, False), (False, True), (True, True)])
def test_attention_sees_what_it_may_see(
    s: int, r: int, g: int, w: int, n: int, kv_heads: int, first: int, split: bool, limited: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(attention_kernel, "PROGRAMS_WANTED", 1000 if split else 1)
    monkeypatch.setattr(attention_kernel, "LEAST_KEYS", 16)
    t, d, h = r + g * w, 16, 4
    zeros = torch.zeros(s, t, dtype=torch.int64)
    hidden = torch.randint(10, 30, (s, g * w, 2))
    hidden[..., 1] = hidden[..., 0] + torch.randint(1, 9, (s, g * w))
    own_len = torch.randint(1, w + 1, (s, g)) if g else None
    fwd = ForwardInputs(zeros, zeros, r, w, n, None, hidden if g else None, own_len, zeros[:, 0])
    if limited:
        fwd.limit = torch.randint(1, n + 1, (s, t))
        fwd.limit[:, r:] -= 1  # a branch row may see its own branch only
    k, v = torch.randn(2, 3, kv_heads, n + 5, d)
    qkv = torch.randn(s * t, (h + 2 * kv_heads) * d)
    slots, n_keys = torch.tensor([2, 0])[:s], torch.tensor([n, n - 7])[:s]
    out = torch.zeros(s * t, h * d)
    attention_kernel.attend(qkv, k, v, slots, n_keys, fwd, h, first, out)
    rows = torch.arange(s * t) % t >= first
    assert close(out[rows], dense_attention(qkv, k, v, slots, n_keys, fwd, h)[rows])
    assert not out[~rows].any()


@pytest.mark.parametrize(
    ("shape", "kv_heads", "cache", "decoder", "prompts"),
    [
        ("llada-8b", 4, NoCache(), Lopa(k=2), (5, 9)),
        ("dream-7b", 2, NoCache(), Lopa(k=2), (5, 5)),  # of one length: the library's attention takes part
        ("llada-8b", 4, DualCache(), Wino(tau1=0.05, tau2=0.03), (5, 9)),
        ("dream-7b", 2, PrefixCache(), Lopa(k=2), (5, 9)),
        ("dream-7b", 2, DualCache(keep_prompt=True), Lopa(k=2), (5, 9)),
    ],
)
def test_the_network_with_kernels_equals_the_plain_one(
    shape: str, kv_heads: int, cache: Cache, decoder: Decoder, prompts: tuple[int, int]
) -> None:
    config = replace(SHAPES[shape], n_kv_heads=kv_heads, **SMALL, **IDS)  # type: ignore[arg-type]
    plain = random_network(config, torch.device("cpu"), torch.float32)
    with_kernels = FastTransformer(config, plain.weights)
    engine = Engine(plain)
    how = {"decoder": decoder, "length": 12, "block": 4, "cache": cache}
    requests = [engine.submit(list(range(3, 3 + n)), **how) for n in prompts]
    for _ in range(3):  # the opening forward, then some that look ahead
        engine.tick()
        asking = [request for request in requests if request.ask is not None]
        assert asking, "the decoder was done too soon to compare anything"
        by_plain = hidden_of(engine, plain, [request.build_layout("packed") for request in asking])
        by_fast = hidden_of(engine, with_kernels, [request.build_layout("packed") for request in asking])
        assert close(by_fast, by_plain)


def hidden_of(engine: Engine, model: Transformer, layouts: list[AskLayout]) -> torch.Tensor:
    before, engine.runner.model = engine.runner.model, model
    try:
        return engine.runner.hidden_states(layouts)
    finally:
        engine.runner.model = before
