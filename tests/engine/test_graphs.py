"""Forwards padded to the sizes that graphs are captured at read the same as exact ones; no GPU is needed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import ripple
from ripple.caches import Cache, DualCache, NoCache, PrefixCache
from ripple.engine.engine import Engine
from ripple.engine.graphs import Captured, Graphs, rounded
from ripple.engine.grouping import group_layouts
from ripple.engine.host_inputs import HostInputs, Shape, device_view, pack, shape_of
from ripple.models.base import QueryScale, Yarn
from ripple.models.experts import ExpertTransformer
from ripple.models.kv_store import KVStore
from ripple.models.shapes import SHAPES, random_network
from ripple.options import Options


@pytest.mark.parametrize("cache", [NoCache(), PrefixCache(), DualCache(), DualCache(keep_prompt=True)])
@pytest.mark.parametrize("n_requests", [1, 3])
def test_padding_to_a_graphs_size_changes_no_row_that_is_read(
    folders: dict[str, Path], family: str, cache: Cache, n_requests: int
) -> None:
    engine = ripple.load(folders[family])
    model, store = engine.model, engine.runner.store
    settings = Options(ripple.Lopa(k=3), 24, 8, cache)
    requests = [engine.submit(list(range(3, 10 + 5 * i)), settings) for i in range(n_requests)]
    n_padded = 0
    for _ in range(8):
        engine.tick()
        layouts = [request.build_layout("packed") for request in requests if request.ask is not None]
        for group, read in zip(*group_layouts(layouts), strict=True):
            exact = pack(group, read, HostInputs(shape_of(group, len(read))))
            size = rounded(exact.shape)
            # Only the kernels may be told of more keys than there are; the plain path reads them all.
            n_keys = exact.shape.n_keys if exact.shape.has_slots else size.r
            padded = pack(group, read, HostInputs(size._replace(n_keys=n_keys)))
            n_padded += padded.shape != exact.shape
            expected = model.hidden(device_view(torch.from_numpy(exact.flat), exact), store)
            padded_rows = model.hidden(device_view(torch.from_numpy(padded.flat), padded, fixed=True), store)
            torch.testing.assert_close(padded_rows[: len(read)], expected, atol=1e-5, rtol=1e-5)
    assert n_padded > 3


def test_sizes_are_few_and_never_smaller() -> None:
    seen = set()
    for s in range(1, 65):
        for g in range(17):
            for r in (20, 32, 33, 100, 300):
                exact = Shape(s, r, g, 32, 900, s * 32, r < 300, False)
                size = rounded(exact)
                assert all(big >= small for big, small in zip(size[:6], exact[:6], strict=True))
                assert rounded(size) == size
                seen.add((size.s, size.r, size.g))
    assert len(seen) <= 7 * 11 * 5


@pytest.mark.parametrize(
    "sizes", [((64, 512), (96, 512)), ((8, 256), (4, 512)), ((8, 256), (8, 1024), (8, 256))]
)
@pytest.mark.parametrize("is_scarce", [False, True])
def test_a_store_that_was_replaced_drops_all_graphs_wherever_the_new_one_lies(
    engines: dict[str, Engine],
    sizes: tuple[tuple[int, int], ...],
    is_scarce: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Graphs hold strides as well as addresses, and new memory is often where the old was."""
    zeros, n_asked = KVStore._zeros, 0

    def scarce(store: KVStore, shape: torch.Size) -> list[torch.Tensor]:
        nonlocal n_asked
        n_asked += 1
        if is_scarce and n_asked == 2:  # old and new do not fit together
            raise torch.OutOfMemoryError("device")
        return zeros(store, shape)

    monkeypatch.setattr(KVStore, "_zeros", scarce)
    model = engines["llada"].model
    store = KVStore(model.config, torch.device("cpu"), torch.float32)
    first, *rest = sizes
    store.resize(*first)
    graphs = Graphs(model, store)
    graphs._forget_moved_store()
    graphs._graphs = {Shape(1, 32, 0, 0, 256, 32, True, False): None}  # type: ignore[dict-item]
    graphs._forget_moved_store()
    assert graphs._graphs, "nothing has moved"
    for size in rest:
        store.resize(*size)
    graphs._forget_moved_store()
    assert not graphs._graphs


class Replayed:
    """Stands in for a CUDA graph: replaying runs the captured forward again on what its inputs hold now."""

    def __init__(self, graphs: Graphs, captured: Captured) -> None:
        self.graphs, self.captured = graphs, captured

    def replay(self) -> None:
        graphs, captured = self.graphs, self.captured
        captured.flat.copy_(torch.from_numpy(captured.inputs.flat))
        view = device_view(captured.flat, captured.inputs, fixed=True)
        with torch.inference_mode():
            captured.hidden.copy_(graphs.model.hidden(view, graphs.store))


def capture(graphs: Graphs, inputs: HostInputs) -> Captured:
    flat = torch.from_numpy(inputs.flat).clone()
    hidden = graphs.model.hidden(device_view(flat, inputs, fixed=True), graphs.store)
    own = HostInputs(inputs.shape, inputs.flat.copy())
    captured = Captured(None, own, flat, hidden)  # type: ignore[arg-type]
    captured.graph = Replayed(graphs, captured)  # type: ignore[assignment]
    return captured


def rounded_a_little(shape: Shape) -> Shape:
    """Round up less than a GPU's graphs do: the interpreter takes its time for every padded row."""
    r, n_keys, n_read = (
        -(-n // step) * step for n, step in ((shape.r, 4), (shape.n_keys, 16), (shape.n_read, 8))
    )
    return shape._replace(r=r, g=shape.g + shape.g % 2, n_keys=max(n_keys, r), n_read=n_read)


TINY = {
    "d_model": 32, "n_layers": 1, "n_heads": 2, "head_dim": 16, "d_ff": 32, "vocab_size": 60, "mask_id": 59,
    "end_ids": (58,), "max_positions": 64,
}  # fmt: skip
BLOCKS: dict[str, Any] = {"n_kv_heads": 1, "attention_block": 4}
FEW_EXPERTS = {
    "d_model": 64, "n_dense": 0, "expert_ff": 32, "n_experts": 4, "n_chosen": 2, "n_groups": 2,
    "n_groups_chosen": 1, "rotary_dim": 8,
}  # fmt: skip
STRETCHED = {"yarn": Yarn(16.0, 4, 32.0, 1.0), "query_scale": QueryScale(0.1, 4)}  # within 12 positions
BLOCKWISE = {"cache": "exact", "decoder": ["rps:tau_pivot=0.2,k_max=3", "edit:tau=0.4,tau_edit=0.3"]}


@pytest.mark.parametrize(
    ("shape", "sizes", "how"),
    [
        ("llada-8b", {"n_kv_heads": 2}, {"cache": "dual", "block": 4}),
        ("dream-7b", {"n_kv_heads": 1}, {"cache": "prefix", "block": 4}),
        ("llada-8b", {"n_kv_heads": 1}, {"cache": "none", "block": 4}),
        ("sdar-8b-b32", BLOCKS, BLOCKWISE),
        ("nemotron-8b", BLOCKS | STRETCHED, BLOCKWISE),
        ("llada2-mini", BLOCKS | FEW_EXPERTS, BLOCKWISE | {"length": 5}),
    ],
)
def test_the_whole_gpu_path_decodes_as_the_plain_one(
    shape: str, sizes: dict[str, Any], how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels and fused statistics in Triton's interpreter, graphs by a stand-in; all else is real."""
    fast = pytest.importorskip("ripple.models.gpu.fast", reason="Triton is not installed")
    fast_experts = pytest.importorskip("ripple.models.gpu.fast_experts")
    config = dataclasses.replace(SHAPES[shape], **TINY | sizes)
    plain: Any = random_network(config, torch.device("cpu"), torch.float32)
    with torch.inference_mode():
        plain.weights.head.mul_(4)  # some positions are sure
    has_experts = isinstance(plain, ExpertTransformer)
    for layer in plain.weights.layers if has_experts else ():
        layer.router_bias = 0.2 * torch.randn(config.n_experts, generator=torch.Generator().manual_seed(1))  # type: ignore[attr-defined]
    n_replays = 0
    replay = Replayed.replay

    def counted(self: Replayed) -> None:
        nonlocal n_replays
        n_replays += 1
        replay(self)

    monkeypatch.setattr(Replayed, "replay", counted)
    monkeypatch.setattr(Graphs, "_capture", capture)
    monkeypatch.setattr(fast.FastTransformer, "has_static_shapes", True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr("ripple.engine.graphs.rounded", rounded_a_little)
    how = {"decoder": ["rps:tau_pivot=0.2,k_max=3", "wino"], "length": 8} | how
    prompts = [[3, 4, 5], [9, 8]]
    expected = Engine(plain).generate(prompts, **how)
    network = fast_experts.FastExpertTransformer if has_experts else fast.FastTransformer
    results = Engine(network(config, plain.weights)).generate(prompts, **how)
    assert [(r.token_ids, r.nfe) for r in results] == [(r.token_ids, r.nfe) for r in expected]
    assert sum(r.nfe_lookahead for r in results) > 0 and n_replays > 0, "shapes were run, captured, replayed"
