"""Feeds malformed inputs to everything that reads from outside, and keeps whatever is not a clean error.

    python -m tools.fuzz --state FOLDER --out results/survival-cpu.jsonl     # a million inputs
    python -m tools.fuzz --state FOLDER --share 0.01                         # a hundredth of them
    python -m tools.fuzz --replay trace:12345

An input follows from its surface and its number alone. Clean is: accepted, or refused by a `RippleError` of
one printable sentence, by a 4xx with a body in OpenAI's shape, by exit code 2 with one line on stderr. All
else is a failure: another exception, status or exit code, a process that dies, more than `CPU_S` of processor
time, more than `MEMORY`. Surfaces run in processes of their own; where one dies, another goes on behind the
input that killed it. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import logging
import mmap
import os
import platform
import random
import resource
import struct
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import torch

import ripple
from ripple.files import append_line, read_lines
from tools.surfaces import SURFACES
from tools.surfaces.base import Surface, Unclean

CPU_S = 5.0  # for one input
MEMORY = 8 << 30  # of address space
CHUNK = 2500  # inputs of one process
SCRATCH = "/dev/shm" if os.path.isdir("/dev/shm") else None  # a disk would take most of the time


class Tally(NamedTuple):
    """What became of the inputs of a surface up to `next`."""

    next: int = 0
    accepted: int = 0
    refused: int = 0
    failed: int = 0


class SharedTally:
    """A tally in memory that a process shares with its parent, who reads it whatever happens."""

    def __init__(self, start: Tally) -> None:
        self._memory = mmap.mmap(-1, 32)
        self.write(start)

    def read(self) -> Tally:
        """Return what was written last."""
        return Tally(*struct.unpack("<4q", self._memory[:32]))

    def write(self, tally: Tally) -> None:
        """Set it."""
        self._memory[:32] = struct.pack("<4q", *tally)


def feed(surface: Surface, number: int) -> tuple[str, str]:
    """Make one input and feed it; return what became of it, and what went wrong."""
    case = surface.case(random.Random(f"{surface.name} {number}"))
    start = time.process_time()
    try:
        is_accepted = surface.feed(case)
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        said = str(error) if isinstance(error, Unclean) else f"{type(error).__name__}: {error!s:.300}"
        return "failed", f"{said} at {Path(last.filename).name}:{last.lineno} for {case!r:.800}"
    if (seconds := time.process_time() - start) > CPU_S:
        return "failed", f"{seconds:.1f} s of processor time for {case!r:.800}"
    return ("accepted" if is_accepted else "refused"), ""


def run_part(name: str, start: Tally, stop: int, failures: Path) -> Tally:
    """Feed the inputs of one surface from `start.next` to `stop` and return the tally then."""
    shared = SharedTally(start)
    while (tally := shared.read()).next < stop:
        if not (pid := os.fork()):
            try:
                _work(name, stop, shared, failures)
            finally:  # whatever happens, this process ends here
                os._exit(sys.exc_info()[0] is not None)
        killed_by = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        now = shared.read()
        if killed_by == 0:
            continue
        if now.next == tally.next and killed_by > 0:
            raise SystemExit(f"{name} cannot be set up: exit code {killed_by}")
        append_line(failures, {"case": f"{name}:{now.next}", "what": f"the process ended with {killed_by}"})
        shared.write(now._replace(next=now.next + 1, failed=now.failed + 1))
    return tally


def _work(name: str, stop: int, shared: SharedTally, failures: Path) -> None:
    """Feed inputs in a fork of this process until there are no more."""
    logging.disable()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory(dir=SCRATCH) as place:
        os.chdir(place)
        with SURFACES[name](Path(place)) as surface:
            while (tally := shared.read()).next < stop:
                resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + 4 * CPU_S) + 1, -1))
                outcome, what = feed(surface, tally.next)
                if what:
                    append_line(failures, {"case": f"{name}:{tally.next}", "what": what})
                counted = tally._asdict()
                shared.write(Tally(**counted | {"next": tally.next + 1, outcome: counted[outcome] + 1}))
        os.chdir("/")


def run(share: float, names: list[str], state: Path) -> dict[str, Any]:
    """Feed every surface its share of inputs, a part of each in turn, and sum up."""
    state.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    wanted = {name: round(SURFACES[name].n * share) for name in names}
    tallies = {name: _kept(state, name) for name in names}
    while todo := [name for name in names if tallies[name].next < wanted[name]]:
        for name in todo:
            stop = min(wanted[name], tallies[name].next + max(CHUNK, wanted[name] // 20))
            tallies[name] = run_part(name, tallies[name], stop, state / "failures.jsonl")
            append_line(state / f"{name}.jsonl", tallies[name]._asdict())
            print(f"{name}: {tallies[name]}", file=sys.stderr, flush=True)
    surfaces = {name: _counts(tally) for name, tally in tallies.items()}
    totals = {what: sum(one[what] for one in surfaces.values()) for what in ("n", *Tally._fields[1:])}
    return {
        "bench": "fuzz", **totals, "surfaces": surfaces, "seconds": round(time.monotonic() - start),
        "ripple": ripple.__version__, "torch": str(torch.__version__), "python": platform.python_version(),
    }  # fmt: skip


def _counts(tally: Tally) -> dict[str, int]:
    return {"n": tally.next, **dict(zip(Tally._fields[1:], tally[1:], strict=True))}


def _kept(state: Path, name: str) -> Tally:
    lines = read_lines(state / f"{name}.jsonl")
    return Tally(**lines[-1]) if lines else Tally()


def replay(case: str) -> None:
    """Feed one input once more and say what became of it."""
    name, _, number = case.partition(":")
    with tempfile.TemporaryDirectory() as place, SURFACES[name](Path(place)) as surface:
        os.chdir(place)
        print(*feed(surface, int(number)))
        os.chdir("/")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--share", type=float, default=1.0, help="of each surface's number of inputs")
    parser.add_argument("--only", default=",".join(SURFACES), help="surfaces, joined by commas")
    parser.add_argument("--state", type=Path, default=Path("fuzz"), help="a folder; a run goes on from it")
    parser.add_argument("--out", type=Path, help="add the result as a line")
    parser.add_argument("--replay", metavar="SURFACE:NUMBER")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.replay:
        replay(args.replay)
        sys.exit()
    line = run(args.share, args.only.split(","), args.state.absolute())
    print(json.dumps(line))
    if args.out:
        append_line(args.out, line)
    sys.exit(line["failed"] > 0)
