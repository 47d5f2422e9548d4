"""Replicas under load, simulated: Poisson arrivals, the least busy of two, continuous batches in ticks.

A tick costs what the requests in it ask for, by a price that the caller gives; requests join and leave
between ticks, as in the engine. Nothing else takes time.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

RowCounts = Sequence[int]  # what each forward of a request asks for, as the price knows it
Price = Callable[[Sequence[int]], float]  # seconds of a tick in which requests ask for these
_ARRIVAL = -1  # of a request, in place of a replica's number


class Served(NamedTuple):
    """One request."""

    arrived: float
    begun: float
    ended: float


class _Live:
    """A request that is decoded."""

    __slots__ = ("arrived", "begun", "n_done", "script")

    def __init__(self, arrived: float, begun: float, script: RowCounts) -> None:
        self.arrived, self.begun, self.script = arrived, begun, script
        self.n_done = 0  # forwards


class _Replica:
    """One engine: requests that wait, and those that are decoded."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[float, RowCounts]] = deque()
        self.live: list[_Live] = []
        self.busy_s = 0.0

    @property
    def n(self) -> int:
        """Requests here."""
        return len(self.waiting) + len(self.live)


def simulate(
    scripts: Sequence[RowCounts], price: Price, n_replicas: int, rate: float, max_batch: int, seed: int = 0
) -> tuple[list[Served], float]:
    """Serve requests that arrive at `rate` per second; return them by their ends, and the busy share."""
    rng = random.Random(seed)
    replicas = [_Replica() for _ in range(n_replicas)]
    served: list[Served] = []
    events: list[tuple[float, int]] = [(rng.expovariate(rate), _ARRIVAL)]
    left = iter(scripts)
    now = 0.0

    def begin(number: int) -> None:
        """Admit what fits and start a tick, if there is anything to do."""
        replica = replicas[number]
        while replica.waiting and len(replica.live) < max_batch:
            arrived, script = replica.waiting.popleft()
            replica.live.append(_Live(arrived, now, script))
        if replica.live:
            seconds = price([one.script[one.n_done] for one in replica.live])
            replica.busy_s += seconds
            heapq.heappush(events, (now + seconds, number))

    while events:
        now, number = heapq.heappop(events)
        if number == _ARRIVAL:
            if (script := next(left, None)) is None:
                continue
            heapq.heappush(events, (now + rng.expovariate(rate), _ARRIVAL))
            chosen = min(rng.randrange(n_replicas), rng.randrange(n_replicas), key=lambda i: replicas[i].n)
            was_idle = not replicas[chosen].live
            replicas[chosen].waiting.append((now, script))
            if was_idle:
                begin(chosen)
            continue
        kept = []
        for one in replicas[number].live:
            one.n_done += 1
            if one.n_done == len(one.script):
                served.append(Served(one.arrived, one.begun, now))
            else:
                kept.append(one)
        replicas[number].live = kept
        begin(number)
    return served, sum(replica.busy_s for replica in replicas) / (n_replicas * now)
