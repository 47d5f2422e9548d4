"""The benchmarks run, and what they report hangs together."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ripple.bench import equality, overhead, packing
from ripple.errors import RippleError
from ripple.models.transformer import Transformer


def test_packed_lookahead_strays_only_where_the_context_is_live(
    folders: dict[str, Path], family: str
) -> None:
    kl = {name: row["kl_mean"] for name, row in packing.measure(folders[family], length=32)["caches"].items()}
    assert kl["dual"] < 1e-6 < kl["none"]


def test_overhead_reports_every_decoder_and_a_positive_time(folders: dict[str, Path]) -> None:
    found = overhead.measure(folders["llada"], length=32)
    assert set(found["decoders"]) == set(overhead.DECODERS)
    for row in found["decoders"].values():
        assert row["steps"] > 0 and row["model_ms"] > 0 and row["overhead_ms"] > 0


@pytest.mark.slow
def test_the_device_check_passes_here() -> None:
    gaps = equality.measure("cpu")["gaps"]
    assert len(gaps) == 2 * 2 * 13  # families, dtypes, pairs of paths


def test_the_device_check_notices_a_wrong_path(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = Transformer.hidden

    def drifting(self: Transformer, fwd: object, store: object = None) -> torch.Tensor:
        rows = exact(self, fwd, store)  # type: ignore[arg-type]
        return rows * 1.01 if getattr(fwd, "branch_len", 0) else rows

    monkeypatch.setattr(Transformer, "hidden", drifting)
    with pytest.raises(RippleError, match="differ by"):
        equality.measure("cpu")
