"""Training data made on the fly: generator processes, and a growing pool of token sequences on the device.

Samples are stored back to back as 16-bit ids. A batch is gathered on the device with fixed length,
filled up with end tokens: [prompt | response | end ... end]. Several lengths are used, so that canvases
of 128 to 512 all look familiar.
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
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from noise import Batch

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
    from ripple.tasks import TASKS

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
    import tokenizer

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


class Pool:
    """Samples on the device, drawn at random."""

    def __init__(self, device: torch.device, samples: int, eos: int, short: int) -> None:
        self.device, self.eos, self.short = device, eos, short
        self.tokens = torch.zeros(samples * 128, dtype=torch.int16, device=device)
        self.start = torch.zeros(samples, dtype=torch.int64, device=device)
        self.prompt = torch.zeros(samples, dtype=torch.int32, device=device)
        self.total = torch.zeros(samples, dtype=torch.int32, device=device)
        self.fits = torch.zeros(samples, dtype=torch.int64, device=device)  # samples short enough for `short`
        self.count = self.used = self.fitting = 0

    def add(self, chunk: Chunk) -> bool:
        """Add a chunk if there is room for it."""
        n, size = len(chunk.total), len(chunk.tokens)
        if self.count + n > len(self.start) or self.used + size > len(self.tokens):
            return False
        ends = np.cumsum(chunk.total, dtype=np.int64)
        here = slice(self.count, self.count + n)
        self.tokens[self.used : self.used + size] = torch.from_numpy(chunk.tokens).to(self.device)
        self.start[here] = torch.from_numpy(ends - chunk.total + self.used).to(self.device)
        self.prompt[here] = torch.from_numpy(chunk.prompt).to(self.device)
        self.total[here] = torch.from_numpy(chunk.total).to(self.device)
        fitting = np.flatnonzero(chunk.total < self.short) + self.count
        self.fits[self.fitting : self.fitting + len(fitting)] = torch.from_numpy(fitting).to(self.device)
        self.count, self.used, self.fitting = self.count + n, self.used + size, self.fitting + len(fitting)
        return True

    def batch(self, rows: int, length: int) -> Batch:
        """Return a random batch of sequences of one length."""
        if length <= self.short:
            pick = self.fits[torch.randint(self.fitting, (rows,), device=self.device)]
        else:
            pick = torch.randint(self.count, (rows,), device=self.device)
        at = torch.arange(length, device=self.device)[None]
        total = self.total[pick].long()
        source = (self.start[pick][:, None] + at).clamp(max=len(self.tokens) - 1)
        ids = torch.where(at < total[:, None], self.tokens[source].long(), self.eos)
        return Batch(ids, self.prompt[pick].long(), total)
