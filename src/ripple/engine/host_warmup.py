"""Re-runs the host path while the device computes, to keep its code and data in the processor's caches.

Python that runs once in five milliseconds finds the caches cold and takes twice its time, and the device
waits for it. Nothing here changes a request: layouts are built on the side and thrown away.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ripple.engine.grouping import group_layouts
from ripple.engine.host_inputs import HostInputs, pack, shape_of
from ripple.engine.readback import QueuedStats
from ripple.engine.work import Work


def host_warmup(work: Work, queued: QueuedStats) -> Iterator[None]:
    """Read made-up numbers for a request and lay its ask out again, without end, in pieces of some 20 us."""
    made_up = np.ones(queued.flat.numel(), dtype=np.float32)
    while True:
        stats = queued.unpack(made_up)
        yield
        stats.is_finite(work.layout)
        stats.answer(0, work.layout, len(work.ask.probes), work.top)
        yield
        again = work.rebuild()
        yield
        groups, reads = group_layouts([again])
        yield
        pack(groups[0], reads[0], HostInputs(shape_of(groups[0], len(reads[0]))))
        yield
