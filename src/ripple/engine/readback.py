"""The numbers of a tick on their way from the device to the host, and the tick's only wait."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from ripple.canvas import Floats
from ripple.engine.layout import AskLayout, ReadSpan
from ripple.engine.stats import RowStats, unpack
from ripple.look import NO_ROWS, Answer, Look

SHORT_INTERVAL_S = 0.001
NOTHING: Floats = np.zeros(0, dtype=np.float32)


@dataclass(slots=True)
class TickStats:
    """All numbers of one tick on the host; answers are views of them."""

    stats: RowStats
    probes: dict[int, Floats]  # by number of the work
    kl: dict[int, Floats]  # by number of the work: base, branches, ahead, one after another
    all_finite: bool | None = None  # not looked at yet

    def is_finite(self, layout: AskLayout) -> bool:
        """Say whether every row of a layout was free of NaN and infinity."""
        if self.all_finite is None:
            self.all_finite = bool(self.stats.finite.all())  # asked once per tick, nearly always true
        return self.all_finite or all(bool(self.stats.finite[span.rows].all()) for span in layout.spans)

    def answer(self, number: int, layout: AskLayout, n_probes: int, top: int) -> Answer:
        """Cut one request's answer, with as many top tokens as it wants, out of the tick's arrays."""
        kl = self.kl.get(number)
        looks, at = [], 0
        for span in layout.looks:
            looks.append(self._look(span, top, None if kl is None else kl[at : at + len(span.pos)]))
            at += len(span.pos)
        probes, n_branches = self.probes.get(number, NOTHING), len(layout.branches)
        return Answer(
            base=looks[0],
            branches=tuple(looks[1 : 1 + n_branches]),
            probes=probes[:n_probes],
            shadow=probes[n_probes:],
            ahead=looks[1 + n_branches] if layout.ahead else None,
            reread=self._look(layout.reread, top) if layout.reread else NO_ROWS,
        )

    def _look(self, span: ReadSpan, top: int, kl: Floats | None = None) -> Look:
        s, at = self.stats, span.rows
        top_token, top_p = s.top_token[at, :top], s.top_p[at, :top]
        return Look(span.pos, s.token[at], s.p[at], s.entropy[at], top_token, top_p, kl)


@dataclass(slots=True)
class QueuedStats:
    """A tick's numbers, still on the device or on their way; a `HostReadback` waits for them."""

    flat: torch.Tensor  # n_rows * (2k + 4) statistics, then the probes, then the KLs
    n_rows: int
    k: int
    probes: dict[int, slice]  # number of the work -> its probes
    n_kl: dict[int, int]  # number of the work -> how many KLs

    def unpack(self, flat: Floats) -> TickStats:
        """Give every number of the copy its place."""
        n = self.n_rows * (2 * self.k + 4)
        stats = unpack(flat[:n].reshape(self.n_rows, -1), self.k)
        probes = {number: flat[n + part.start : n + part.stop] for number, part in self.probes.items()}
        kl, at = {}, len(flat) - sum(self.n_kl.values())
        for number, length in self.n_kl.items():
            kl[number] = flat[at : at + length]
            at += length
        return TickStats(stats, probes, kl)


class HostReadback:
    """Page-locked memory that a tick's numbers are copied to; it and the event are reused."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory = torch.empty(0)
        self._copied = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def wait(self, queued: QueuedStats, while_waiting: Iterator[None]) -> TickStats:
        """Bring everything to the host in one copy; run `while_waiting` piece by piece until it is there."""
        if self._copied is None:
            return queued.unpack(queued.flat.cpu().numpy())
        n = queued.flat.numel()
        if n > len(self._memory):
            self._memory = torch.empty(2 * n, pin_memory=True)
        here = self._memory[:n]
        here.copy_(queued.flat, non_blocking=True)
        self._copied.record(torch.cuda.current_stream(self._device))
        # Other threads get the interpreter within the switch interval. An `EngineThread` makes it short;
        # where nobody has, it is offered to them after every piece.
        offers = threading.active_count() > 1 and sys.getswitchinterval() > SHORT_INTERVAL_S
        while not self._copied.query():  # type: ignore[no-untyped-call]
            next(while_waiting)
            if offers:
                time.sleep(0)
        return queued.unpack(here.numpy().copy())  # decoders may keep what they get
