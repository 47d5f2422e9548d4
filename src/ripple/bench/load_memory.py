"""Measures host memory while a checkpoint loads: peak growth over the weights' own size.

The load runs in a fresh process. Its peak is the kernel's VmHWM, not `ru_maxrss`: the latter survives exec,
so a child starts at its parent's peak and any growth below that would go unseen.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SHARD_BYTES = 256 << 20
_KIB = 1024


def measure(folder: Path | None = None) -> dict[str, Any]:
    """Return sizes and their ratio for `folder`, or for a random checkpoint of 1.1 GB when None."""
    if folder is None:
        import torch

        from ripple.models.random import write_random_checkpoint

        with tempfile.TemporaryDirectory() as place:
            written = write_random_checkpoint(
                place,
                d_model=1024,
                n_layers=28,
                n_heads=16,
                d_ff=4096,
                vocab_size=32768,
                dtype=torch.bfloat16,
                max_shard_bytes=_SHARD_BYTES,
            )
            return measure(written)
    command = [sys.executable, "-m", "ripple.bench.load_memory", "--child", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    sizes = json.loads(done.stdout.splitlines()[-1])
    weights, peak = int(sizes["weights"]), int(sizes["peak"])
    return {
        "bench": "load_memory",
        "weights_gb": round(weights / 1e9, 3),
        "peak_gb": round(peak / 1e9, 3),
        "ratio": round(peak / weights, 4),
    }


def _load(folder: Path) -> dict[str, int]:
    """Load `folder` on the CPU in this process and return the weights' bytes and the peak growth in bytes."""
    import torch

    from ripple.models.checkpoint import empty_weights, read_weights
    from ripple.models.config import read_config

    config = read_config(folder)
    torch.empty(1).add_(1)  # starts the thread pool, which is no part of loading
    before = _status_bytes("VmRSS")
    weights = read_weights(folder, config, torch.device("cpu"), torch.bfloat16)
    peak = _status_bytes("VmHWM") - before
    _, places = empty_weights(config, torch.device("meta"), torch.bfloat16)
    assert weights.embed.shape[0] == config.vocab_size  # the weights are still alive at the peak
    return {"weights": sum(place.nbytes for place in places.values()), "peak": peak}


def _status_bytes(field: str) -> int:
    """Return one memory figure of this process (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * _KIB
    raise RuntimeError(f"/proc/self/status has no {field}.")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the measurement as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folder", nargs="?", type=Path, help="a checkpoint; a random one of 1.1 GB by default"
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    print(json.dumps(_load(options.folder) if options.child else measure(options.folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
