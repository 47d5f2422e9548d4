"""Training samples made on the fly by generator processes, as 16-bit token ids.

Nothing here imports torch, so that a generator process starts quickly.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import queue
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import tokenizer

from ripple.tasks import TASKS

CHUNK = 1000  # samples per message of a generator process
MIX = (("words", 0.24), ("algebra", 0.28), ("functions", 0.24), ("programs", 0.24))
# How often a sample enters the pool. tiny-llada, one token per step, got 54 % of the remainders, a fifth of
# the other three and 4 % of the rest wrong.
EMPHASIS = {"remainder": 4, "rectangle": 2, "percent": 2, "divisor": 2}
LONGEST = 300  # tokens; a longer sample is left out (none was seen)


@dataclass(slots=True)
class Chunk:
    """Packed samples from one generator process."""

    tokens: np.ndarray[Any, np.dtype[np.int16]]
    prompt: np.ndarray[Any, np.dtype[np.int32]]
    total: np.ndarray[Any, np.dtype[np.int32]]


def make_chunk(tok: Any, number: int) -> Chunk:
    """Return chunk `number` of the training stream: each number is a different part of it."""
    prompts, solutions = [], []
    for name, share in MIX:
        count = round(CHUNK * share)
        for i in range(number * count, (number + 1) * count):
            item = TASKS[name].generate("train", i)
            times = EMPHASIS.get(item.kind, 1)
            prompts += [item.prompt] * times
            solutions += [item.solution] * times
    heads = [e.ids for e in tok.encode_batch_fast(prompts)]
    tails = [e.ids for e in tok.encode_batch_fast(solutions)]
    pairs = [(h, t) for h, t in zip(heads, tails, strict=True) if len(h) + len(t) < LONGEST]
    flat = [i for head, tail in pairs for i in (*head, *tail)]
    return Chunk(
        np.array(flat, dtype=np.int16),
        np.array([len(h) for h, _ in pairs], dtype=np.int32),
        np.array([len(h) + len(t) for h, t in pairs], dtype=np.int32),
    )


def _generate(out: Any, family: str, start: int, stride: int, chunks: int) -> None:
    """Put chunks start, start + stride, ... on the queue (the body of a generator process)."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if hasattr(os, "nice"):
        os.nice(10)  # the training loop's own process comes first
    tok = tokenizer.load(family)
    for i in range(chunks):
        out.put(make_chunk(tok, start + i * stride))


class Generators:
    """A set of processes that make chunks until each has made its share."""

    def __init__(self, family: str, workers: int, chunks: int, first: int) -> None:
        context = mp.get_context("spawn")  # forking after torch has started threads is unsafe
        self.queue: Any = context.Queue(maxsize=workers * 64)
        each = -(-chunks // workers)
        self.next = first + each * workers  # where a later session goes on, so that it sees new samples
        self.processes = [
            context.Process(
                target=_generate, args=(self.queue, family, first + w, workers, each), daemon=True
            )
            for w in range(workers)
        ]
        for process in self.processes:
            process.start()

    def take(self, wait_s: float = 0.0) -> list[Chunk]:
        """Return the chunks that are ready, waiting for the first one if asked to."""
        out: list[Chunk] = []
        try:
            out.append(self.queue.get(timeout=wait_s) if wait_s else self.queue.get_nowait())
            while len(out) < 64:
                out.append(self.queue.get_nowait())
        except queue.Empty:
            pass
        return out

    def stop(self) -> None:
        """End the processes."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join(timeout=5)
