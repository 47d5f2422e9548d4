"""Times two versions of the source in turn, on one GPU in one run: has a step or a replay become slower?

    mkdir -p build/before && git archive COMMIT src | tar -x -C build/before
    python tools/side_by_side.py --before build/before/src --after src --out sides.json

Each version runs in a process of its own, which keeps a network of LLaDA-8B's size and waits for its turn;
the rounds alternate. A number is the median of a turn; what is told is the ratio of the medians over the
rounds, after over before. What is timed: a full forward, a step under the dual cache without branches and
with four, and the paper's GSM8K schedule of RPS. Only what all versions have in common is used.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

POINTS = {"full forward": ("none", 0), "dual step": ("dual", 0), "dual lookahead of 4": ("dual", 4)}
REPLAY = "RPS schedule, dual"
PROMPT, LENGTH, MIDDLE, WARM, TICKS = 1000, 256, 4, 5, 15


def measure(shape: str, layers: int) -> None:
    """Build everything, say so, and time all points at every line that comes in."""
    import numpy as np
    import torch

    from ripple.bench.scripts import Hold, Scripted, lookahead, spread
    from ripple.engine.engine import Engine
    from ripple.models.shapes import random_network, shape_named

    times: list[float] = []

    class Timed(Hold):
        """Repeat a forward and note how long each takes, then fill the canvas."""

        def decode(self, canvas: Any) -> Any:
            windows = list(canvas.windows())
            for number in range(WARM + TICKS):
                start = time.perf_counter()
                yield lookahead(canvas, windows[MIDDLE], self.branches)
                if number >= WARM:
                    times.append(time.perf_counter() - start)
            for window in windows:
                pos = canvas.masked(window)
                canvas.commit(pos, np.zeros(len(pos), np.int64), np.ones(len(pos), np.float32), "standard")

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    engine = Engine(random_network(shape_named(shape, layers or None), device, torch.bfloat16), max_batch=1)
    ids = torch.randint(50_000, (PROMPT,), generator=torch.Generator().manual_seed(0)).tolist()
    (schedule,) = spread(12.3, 23.4, 3.87, 8, 1)

    def step(cache: str, branches: int) -> float:
        times.clear()
        engine.generate(ids, decoder=Timed(branches), length=LENGTH, block=32, cache=cache)
        return statistics.median(times)

    def replay() -> float:
        start = time.perf_counter()
        engine.generate(ids, decoder=Scripted(schedule), length=LENGTH, block=32, cache="dual")
        return time.perf_counter() - start

    def turn() -> dict[str, float]:
        told = {name: step(*point) for name, point in POINTS.items()}
        return told | {REPLAY: statistics.median(replay() for _ in range(3))}

    turn()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(turn()), flush=True)


class Version:
    """One version of the source, in a process of its own."""

    def __init__(self, source: Path, arguments: list[str]) -> None:
        self.times: list[dict[str, float]] = []
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--measure", *arguments], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(source.resolve())},
        )  # fmt: skip

    def wait(self) -> None:
        """Wait until everything is built."""
        self._line()

    def take_turn(self) -> None:
        """Time all points once."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.times.append(json.loads(self._line()))

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a version has failed; see above")
        return line


def source_hash(source: Path) -> str:
    """Return what tells one version of a source folder from another."""
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*.py")):
        digest.update(f"{path.relative_to(source)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def compared(before: list[dict[str, float]], after: list[dict[str, float]]) -> dict[str, dict[str, Any]]:
    """Return, for each point, the milliseconds of all turns and the ratio of their medians."""
    told = {}
    for name in before[0]:
        sides = [[1e3 * turn[name] for turn in side] for side in (before, after)]
        ratio = statistics.median(sides[1]) / statistics.median(sides[0])
        told[name] = {
            "before_ms": [round(ms, 4) for ms in sides[0]], "after_ms": [round(ms, 4) for ms in sides[1]],
            "after_over_before": round(ratio, 4),
        }  # fmt: skip
    return told


def main() -> None:
    """Run both versions in turn and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--before", type=Path, help="a source folder")
    parser.add_argument("--after", type=Path, default=Path("src"), help="a source folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shape", default="llada-8b")
    parser.add_argument("--layers", type=int, default=0, help="fewer layers than the released model has")
    parser.add_argument("--out", type=Path, help="a JSON file")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    how = ["--shape", args.shape, "--layers", str(args.layers)]
    if args.measure:
        return measure(args.shape, args.layers)
    if args.before is None:
        parser.error("--before is missing")
    versions = [Version(source, how) for source in (args.before, args.after)]
    for version in versions:
        version.wait()
    for number in range(args.rounds):
        for version in versions if number % 2 else versions[::-1]:
            version.take_turn()
    for version in versions:
        version.close()
    sources = {"before": source_hash(args.before), "after": source_hash(args.after)}
    text = json.dumps({**sources, **compared(*(version.times for version in versions))}, indent=1)
    print(text)
    if args.out is not None:
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
