"""Experts: routing as specified, row by row, and the GPU path against the plain one."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ripple.models.base import ExpertsConfig
from ripple.models.experts import ExpertLayer, ExpertTransformer, route, routed
from ripple.models.kv_store import KVStore
from ripple.models.shapes import random_network
from tests.models.test_limits import inputs

pytest.importorskip("triton", reason="Triton is not installed")
from ripple.models.gpu import experts_kernel
from ripple.models.gpu.fast_experts import FastExpertTransformer

CONFIG = ExpertsConfig(
    family="llada2", d_model=64, n_layers=2, n_heads=2, n_kv_heads=1, head_dim=32, d_ff=64, vocab_size=64,
    norm_eps=1e-6, rope_theta=6e5, rope_fp32=False, qkv_bias=False, tied_head=False, logit_shift=0,
    mask_id=63, end_ids=(62,), max_positions=64, attention_block=8, qk_norm=True, rotary_dim=16, n_dense=1,
    n_experts=8, n_chosen=3, expert_ff=32, n_shared=1, n_groups=4, n_groups_chosen=2, routed_scale=2.5,
)  # fmt: skip


@pytest.fixture(scope="module")
def model() -> ExpertTransformer:
    loaded: Any = random_network(CONFIG, torch.device("cpu"), torch.float32)
    for layer in loaded.weights.layers[1:]:
        layer.router_bias = 0.2 * torch.randn(CONFIG.n_experts, generator=torch.Generator().manual_seed(2))
    return loaded  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def layer(model: ExpertTransformer) -> ExpertLayer:
    last = model.weights.layers[-1]
    assert isinstance(last, ExpertLayer)
    return last


@pytest.fixture
def rows() -> torch.Tensor:
    return torch.randn(37, CONFIG.d_model, generator=torch.Generator().manual_seed(0))


def reference_route(row: torch.Tensor, layer: ExpertLayer) -> dict[int, float]:
    """One row's experts and weights, by the published steps."""
    c = CONFIG
    score = [1 / (1 + math.exp(-float(torch.dot(row, layer.router[e])))) for e in range(c.n_experts)]
    choice = [s + float(layer.router_bias[e]) for e, s in enumerate(score)]
    size = c.n_experts // c.n_groups
    groups = [range(g * size, (g + 1) * size) for g in range(c.n_groups)]
    best_two = [sum(sorted((choice[e] for e in group), reverse=True)[:2]) for group in groups]
    kept = sorted(range(c.n_groups), key=lambda g: -best_two[g])[: c.n_groups_chosen]
    candidates = [e for g in kept for e in groups[g]]
    chosen = sorted(candidates, key=lambda e: -choice[e])[: c.n_chosen]
    total = sum(score[e] for e in chosen) + 1e-20
    return {e: score[e] / total * c.routed_scale for e in chosen}


def test_routing_follows_the_published_steps(layer: ExpertLayer, rows: torch.Tensor) -> None:
    chosen, weight = route(rows, layer, CONFIG)
    n_outside = 0
    for i, row in enumerate(rows):
        wanted = reference_route(row, layer)
        assert dict(zip(chosen[i].tolist(), weight[i].tolist(), strict=True)) == pytest.approx(
            wanted, rel=1e-5
        )
        plain = torch.topk(torch.sigmoid(layer.router @ row), CONFIG.n_chosen).indices.tolist()
        n_outside += set(plain) != set(wanted)
    assert n_outside > 5, "groups and bias matter"


def test_the_router_runs_in_fp32_whatever_the_rows_are(layer: ExpertLayer, rows: torch.Tensor) -> None:
    chosen, weight = route(rows.bfloat16(), layer, CONFIG)
    exact = route(rows.bfloat16().float(), layer, CONFIG)
    assert weight.dtype == torch.float32 and torch.equal(chosen, exact[0]) and torch.equal(weight, exact[1])


def test_a_row_gets_the_weighted_sum_of_its_experts(layer: ExpertLayer, rows: torch.Tensor) -> None:
    out = routed(rows, layer, CONFIG)
    for i, row in enumerate(rows[:7]):
        wanted = torch.zeros(CONFIG.d_model)
        for e, weight in reference_route(row, layer).items():
            gate, up = (layer.expert_gate_up[e] @ row).chunk(2)
            wanted += weight * (layer.expert_down[e] @ (F.silu(gate) * up))
        torch.testing.assert_close(out[i], wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("n_rows", [1, 37])
@pytest.mark.parametrize("rows_at_once", [16, 64])
def test_the_kernel_adds_what_the_plain_code_adds(
    layer: ExpertLayer, rows: torch.Tensor, n_rows: int, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experts_kernel, "ROWS", rows_at_once)
    chosen, weight = route(rows[:n_rows], layer, CONFIG)
    pairs = experts_kernel.sorted_pairs(chosen, weight, CONFIG.n_experts)
    counts = torch.bincount(chosen.flatten(), minlength=CONFIG.n_experts)
    assert torch.equal(pairs.first.diff(), counts) and (counts == 0).any(), "some experts have nothing to do"
    out = experts_kernel.routed(rows[:n_rows], pairs, layer.expert_gate_up, layer.expert_down)
    torch.testing.assert_close(out, routed(rows[:n_rows], layer, CONFIG), atol=1e-5, rtol=1e-5)


def test_the_network_with_kernels_equals_the_plain_one(model: ExpertTransformer) -> None:
    """A prefix stored, then a block live with another version of it as a branch."""
    fast = FastExpertTransformer(model.config, model.weights)
    generator, zero = torch.Generator().manual_seed(1), torch.zeros(1, dtype=torch.int64)
    ids = torch.randint(0, 60, (24,), generator=generator)
    outs = []
    for network in (model, fast):
        store = KVStore(network.config, network.device, network.dtype)
        store.resize(1, 24)
        prefix, live = torch.arange(16), torch.arange(16, 24)
        first = network.hidden(inputs(network.config, ids[:16], prefix, 16, store_slots=zero), store)
        branch = inputs(
            network.config, torch.cat([ids[16:], ids[16:].flip(0)]), torch.cat([live, live]), 24, slots=zero,
            n_live=8, branch_len=8, hide=torch.tensor([[[16, 24]] * 8]), own_len=torch.tensor([[8]]),
        )  # fmt: skip
        outs.append(torch.cat([first, network.hidden(branch, store)]))
    assert float((outs[0] - outs[1]).norm() / outs[0].norm()) < 1e-5


def test_rows_alone_and_in_company_are_the_same(model: ExpertTransformer) -> None:
    """Nothing is dropped: an expert takes as many rows as come."""
    ids, pos = torch.arange(8), torch.arange(8)
    alone = model.hidden(inputs(CONFIG, ids, pos, 8))
    config = dataclasses.replace(CONFIG)
    fwd = inputs(config, ids, pos, 8)
    fwd.ids, fwd.pos, fwd.limit = (part.repeat(5, 1) for part in (fwd.ids, fwd.pos, fwd.limit))
    fwd.read = torch.arange(40)
    together = model.hidden(fwd).view(5, 8, -1)
    torch.testing.assert_close(together[3], alone, atol=1e-5, rtol=1e-5)
