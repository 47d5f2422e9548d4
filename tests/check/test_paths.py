"""The check of a device passes here, and notices a wrong path."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from ripple.check import kernels, paths
from ripple.check.paths import FP8_TOLERANCE, MODELS, SIZES, TOLERANCE, check_paths
from ripple.engine.load import load
from ripple.errors import RippleError
from ripple.models.config import read_config
from ripple.models.experts import ExpertTransformer, route
from ripple.models.families import FAMILIES
from ripple.models.shapes import SHAPES
from ripple.models.transformer import Transformer
from ripple.options import Options


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller networks than on a device; the statements are the same."""
    for name, value in {"d_model": 64, "n_layers": 2, "d_ff": 128}.items():
        monkeypatch.setitem(SIZES, name, value)


def test_the_check_passes_here_and_covers_fp8_where_a_device_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ripple.models.fp8.has_fp8", lambda device: True)
    monkeypatch.setattr("ripple.check.paths.has_fp8", lambda device: True)
    monkeypatch.setattr("ripple.check.kernels.fp8_gaps", lambda device: [("products", 0.0)])
    everything = check_paths("cpu")
    of_fp8 = {name: gap for name, gap in everything.items() if "fp8" in name}
    gaps = {name: gap for name, gap in everything.items() if name not in of_fp8}
    n_gaps = [(case, len(case.caches) + 1) for case in MODELS]  # and packed against exact branches
    assert len(gaps) == sum(n for _, n in n_gaps) * len(TOLERANCE)
    assert all(gap <= TOLERANCE[name.split()[1].rstrip(":")] for name, gap in gaps.items())
    assert any(gap > 0 for gap in gaps.values()), "different paths round differently"
    # With activations in bf16 and in fp32, and products.
    assert len(of_fp8) == 2 * sum(n for case, n in n_gaps if not case.has_experts) + 1
    for name, gap in of_fp8.items():
        assert gap <= FP8_TOLERANCE["fp8, activations in fp32" if "fp32" in name else "fp8"], name


def test_every_family_is_checked_at_sizes_that_its_kernels_take(tmp_path: Path) -> None:
    assert {case.family for case in MODELS} == set(FAMILIES)
    for case in MODELS:
        config = read_config(case.write(tmp_path / case.family, d_model=256, d_ff=case.d_ff))
        assert config.head_dim.bit_count() == 1 and config.d_model % 128 == 0
        assert case.has_experts == hasattr(config, "expert_ff")
        assert getattr(config, "expert_ff", 128) % 128 == 0


def test_the_plain_path_of_a_model_with_experts_has_them(tmp_path: Path) -> None:
    (case,) = (case for case in MODELS if case.has_experts)
    engine = load(case.write(tmp_path), device="cpu")
    request = paths._pending_lookahead(engine, Options("lopa:k=2", 64, 32, "exact"))
    layout = request.build_layout("packed")
    twin = paths._plain_twin(engine)
    assert isinstance(twin.model, ExpertTransformer)
    expected = paths._logits(engine.runner, layout)  # type: ignore[arg-type]
    assert paths._largest(paths._logits(twin, layout), expected) == 0
    twin.model = Transformer(twin.model.config, twin.model.weights)
    assert paths._largest(paths._logits(twin, layout), expected) > TOLERANCE["bfloat16"]


def test_in_bf16_hardly_a_row_is_near_a_tie_between_experts(tmp_path: Path) -> None:
    """Each path would round it to another side."""
    (case,) = (case for case in MODELS if case.has_experts)
    n_chosen = {}
    for dtype in TOLERANCE:
        model = paths._engine(case.write(tmp_path), "cpu", dtype).model
        rows = torch.randn(500, model.config.d_model, generator=torch.Generator().manual_seed(0))
        chosen, _ = route(rows, model.weights.layers[-1], model.config)  # type: ignore[attr-defined]
        n_chosen[dtype] = len(chosen.sort(-1).values.unique(dim=0))
    assert n_chosen["bfloat16"] < 5 < 50 < n_chosen["float32"], "different sets of experts"


def test_the_kernel_of_experts_is_held_to_the_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU at full width; here as small as there are few and many rows of an expert."""
    pytest.importorskip("triton", reason="Triton is not installed")
    from ripple.models.gpu import experts_kernel

    few = {"d_model": 64, "n_heads": 2, "n_kv_heads": 1, "head_dim": 16, "expert_ff": 32, "n_experts": 8}
    small = dataclasses.replace(SHAPES["llada2-mini"], n_groups=4, n_groups_chosen=2, n_chosen=2, **few)  # type: ignore[call-arg]
    monkeypatch.setitem(SHAPES, "llada2-mini", small)
    monkeypatch.setattr(kernels, "EXPERT_ROWS", (5, 300))
    gaps = dict(kernels.expert_gaps(torch.device("cpu"), torch.float32))
    assert [name.split(",")[1] for name in gaps] == [" 16 at once", " 64 at once"]
    assert all(gap < 1e-6 for gap in gaps.values())
    exact = experts_kernel.routed
    monkeypatch.setattr(experts_kernel, "routed", lambda *inputs: 1.01 * exact(*inputs))
    assert all(gap > 0.005 for _, gap in kernels.expert_gaps(torch.device("cpu"), torch.float32))


def test_the_check_notices_a_wrong_path(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = Transformer.hidden

    def drifting(self: Transformer, inputs: object, store: object = None) -> torch.Tensor:
        rows = exact(self, inputs, store)  # type: ignore[arg-type]
        return rows * 1.01 if getattr(inputs, "branch_len", 0) else rows

    monkeypatch.setattr(Transformer, "hidden", drifting)
    with pytest.raises(RippleError, match="differ by"):
        check_paths("cpu")


def test_some_families_are_checked_alone_and_all_their_differences_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paths, "_check_company", lambda *_: None)
    assert {name.split()[0] for name in check_paths("cpu", ["sdar"])} == {"sdar"}
    monkeypatch.setitem(TOLERANCE, "bfloat16", -1.0)
    with pytest.raises(RippleError) as told:
        check_paths("cpu", ["sdar"], goes_on=True)
    assert str(told.value).count("sdar bfloat16: cache") > 1 and "float32" not in str(told.value)


def test_limits_are_held_to_the_librarys_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    from ripple.models.gpu import attention_kernel

    here = torch.device("cpu"), torch.float32, 4, 1
    assert kernels.limits_gap(*here) < 1e-6
    exact = attention_kernel.attend

    def unlimited(qkv: Any, k: Any, v: Any, slots: Any, lengths: Any, inputs: Any, heads: int) -> Any:
        return exact(qkv, k, v, slots, lengths, dataclasses.replace(inputs, limit=None), heads)

    monkeypatch.setattr(attention_kernel, "attend", unlimited)
    assert kernels.limits_gap(*here) > 0.1


def test_the_check_notices_company(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = Transformer.hidden

    def crowded(self: Transformer, inputs: object, store: object = None) -> torch.Tensor:
        rows = exact(self, inputs, store)  # type: ignore[arg-type]
        return rows.flip(-1) if len(inputs.ids) > 1 else rows  # type: ignore[attr-defined]

    monkeypatch.setattr(Transformer, "hidden", crowded)
    with pytest.raises(RippleError, match="differ"):
        check_paths("cpu")
