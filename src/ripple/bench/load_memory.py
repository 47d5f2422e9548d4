"""Measures host memory while a checkpoint loads: peak growth over the weights' own size.

The load runs in a fresh process. Its peak is the kernel's VmHWM, not `ru_maxrss`: the latter survives exec,
so a child starts at its parent's peak and any growth below that would go unseen.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ripple.bench.folder import check_folder
from ripple.fields import param
from ripple.measurement import Measurement

_SHARD_BYTES = 256 << 20
_KIB = 1024


@dataclass(frozen=True)
class LoadMemory(Measurement):
    """Measure host memory while a checkpoint loads: its peak over the weights' own size."""

    name = "load-memory"

    folder: Path | None = param(None, "a checkpoint; none is a random one of 1.1 GB")

    def run(self) -> dict[str, Any]:
        """Return sizes and their ratio."""
        if self.folder is not None:
            return self._measured(check_folder(self.folder))
        import torch

        from ripple.models.random_checkpoint import write_random_checkpoint

        with tempfile.TemporaryDirectory() as scratch:
            written = write_random_checkpoint(
                scratch, d_model=1024, n_layers=28, n_heads=16, d_ff=4096, vocab_size=32768,
                dtype=torch.bfloat16, max_shard_bytes=_SHARD_BYTES,
            )  # fmt: skip
            return self._measured(written)

    def _measured(self, folder: Path) -> dict[str, Any]:
        command = [sys.executable, "-m", "ripple.bench.load_memory", str(folder)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        sizes = json.loads(done.stdout.splitlines()[-1])
        weights, peak = int(sizes["weights"]), int(sizes["peak"])
        return {
            "bench": self.name,
            "weights_gb": round(weights / 1e9, 3),
            "peak_gb": round(peak / 1e9, 3),
            "ratio": round(peak / weights, 4),
        }


def _load(folder: Path) -> dict[str, int]:
    """Load `folder` on the CPU in this process and return the weights' bytes and the peak growth in bytes."""
    import torch

    from ripple.models.checkpoint import read_weights
    from ripple.models.config import read_config
    from ripple.models.families import FAMILIES

    config = read_config(folder)
    torch.empty(1).add_(1)  # starts the thread pool, which is no part of loading
    before = _status_bytes("VmRSS")
    weights = read_weights(folder, config, torch.device("cpu"), torch.bfloat16)
    peak = _status_bytes("VmHWM") - before
    _, places = FAMILIES[config.family].empty_weights(config, torch.device("meta"), torch.bfloat16)
    assert weights.embed.shape[0] == config.vocab_size  # the weights are still alive at the peak
    return {"weights": sum(place.nbytes for place in places.values()), "peak": peak}


def _status_bytes(field: str) -> int:
    """Return one memory figure of this process (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * _KIB
    raise RuntimeError(f"/proc/self/status has no {field}.")


if __name__ == "__main__":  # the fresh process that loads
    print(json.dumps(_load(Path(sys.argv[1]))))
