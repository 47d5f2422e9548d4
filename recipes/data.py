"""A growing pool of token sequences on the device.

Samples are stored back to back as 16-bit ids. A batch is gathered on the device with fixed length,
filled up with end tokens: [prompt | response | end ... end]. Several lengths are used, so that canvases
of 128 to 512 all look familiar.
"""

from __future__ import annotations

import numpy as np
import torch
from noise import Batch
from samples import Chunk


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
