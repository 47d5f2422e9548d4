"""Block-causal attention: with `attention_block` set, networks see what a block-causal mask shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ripple.models.base import ForwardInputs, Model, ModelConfig
from ripple.models.kv_store import KVStore
from ripple.models.load import load_model
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.models.transformer import Transformer
from tests.reference.model import ReferenceModel

pytest.importorskip("triton", reason="Triton is not installed")
from ripple.models.gpu.fast import FastTransformer

BLOCK, N = 8, 29  # the last block is shorter
SIZES = {"vocab_size": 64, "d_model": 64, "n_heads": 4, "n_kv_heads": 2, "n_layers": 2, "d_ff": 64}


@pytest.fixture(scope="module", params=["llada", "dream", "sdar"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp(request.param)
    return write_random_checkpoint(place, request.param, seed=2, sharpness=1.0, **SIZES)


@pytest.fixture(params=[Transformer, FastTransformer])
def model(request: pytest.FixtureRequest, folder: Path) -> Model:
    """The plain network and the one with kernels, block-causal."""
    loaded, _ = load_model(folder, "cpu", "float32")
    return request.param(replace(loaded.config, attention_block=BLOCK), loaded.weights)


@pytest.fixture(scope="module")
def reference(folder: Path) -> Callable[..., torch.Tensor]:
    """Logits of transformers' model under a literal mask [rows, rows]."""
    witness = ReferenceModel(folder)
    return lambda ids, pos, mask: torch.from_numpy(witness.masked(ids, pos, mask))


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(0, 60, (N,), generator=torch.Generator().manual_seed(0))


def inputs(config: ModelConfig, ids: torch.Tensor, pos: torch.Tensor, n_keys: int, **fields: object) -> Any:
    """One canvas of which every row is live unless `fields` say otherwise."""
    limit = config.limits(pos.numpy()[None], n_keys)
    assert limit is not None
    plain = {"n_live": len(ids), "branch_len": 0, "hide": None, "own_len": None, "key_len": None}
    everything = {"ids": ids[None], "pos": pos[None], "n_keys": n_keys, "limit": torch.from_numpy(limit)}
    return ForwardInputs(read=torch.arange(len(ids)), **(plain | everything | fields))  # type: ignore[arg-type]


def block_causal(pos: torch.Tensor) -> np.ndarray:
    """Row i sees key j where j's block is not behind its own."""
    block = pos.numpy() // BLOCK
    return block[None, :] <= block[:, None]


def logits(model: Model, fwd: ForwardInputs, store: KVStore | None = None) -> torch.Tensor:
    return model.logits(model.hidden(fwd, store))


def gap(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual - expected).norm() / expected.norm())


def test_rows_are_limited_to_the_end_of_their_block_and_of_the_canvas(model: Model) -> None:
    pos = np.array([[0, 7, 8, 15, 24, 28]])
    assert model.config.limits(pos, N).tolist() == [[8, 8, 16, 16, 29, 29]]
    assert replace(model.config, attention_block=None).limits(pos, N) is None


def test_a_whole_canvas_equals_the_block_causal_reference(
    model: Model, reference: Callable[..., torch.Tensor], ids: torch.Tensor
) -> None:
    pos = torch.arange(N)
    expected = reference(ids.tolist(), pos.tolist(), block_causal(pos))
    assert gap(logits(model, inputs(model.config, ids, pos, N)), expected) < 1e-5
    full = reference(ids.tolist(), pos.tolist(), np.ones((N, N), dtype=bool))
    assert gap(full, expected) > 0.1  # the mask matters


def test_stored_blocks_are_exact_and_so_are_branches(
    model: Model, reference: Callable[..., torch.Tensor], ids: torch.Tensor
) -> None:
    """Two blocks stored, the third live with another version of it as a branch: both equal full forwards."""
    start, stop, zero = 2 * BLOCK, 3 * BLOCK, torch.zeros(1, dtype=torch.int64)
    store = KVStore(model.config, model.device, model.dtype)
    store.resize(1, N)
    prefix = torch.arange(start)
    model.hidden(inputs(model.config, ids[prefix], prefix, start, store_slots=zero), store)
    if isinstance(model, FastTransformer):  # what lies behind may be anything
        store.k[:, :, :, start:] = store.v[:, :, :, start:] = torch.nan

    live = torch.arange(start, stop)
    branch = ids[live].flip(0)
    fwd = inputs(
        model.config, torch.cat([ids[live], branch]), torch.cat([live, live]), N, slots=zero, n_live=BLOCK,
        branch_len=BLOCK, hide=torch.tensor([[[start, stop]] * BLOCK]), own_len=torch.tensor([[BLOCK]]),
    )  # fmt: skip
    both = logits(model, fwd, store)
    for rows, block in ((both[:BLOCK], ids[live]), (both[BLOCK:], branch)):
        canvas, pos = torch.cat([ids[:start], block]), torch.arange(stop)
        expected = reference(canvas.tolist(), pos.tolist(), block_causal(pos))[start:]
        assert gap(rows, expected) < 1e-5
