"""What the host does while the device computes: its own next part, for nothing, so that it runs warm.

Python that runs once in five milliseconds finds the processor's caches cold and takes twice its time, and the
device waits for it. Nothing here changes a request: plans are made on the side and thrown away.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ripple.engine.assemble import Sheet, pack, shape_of
from ripple.engine.hear import Queued
from ripple.engine.plan import Reading, arrange
from ripple.engine.session import Session


def rehearsal(session: Session, reading: Reading, queued: Queued) -> Iterator[None]:
    """Hear made-up numbers for a request and lay its ask out again, without end, in pieces of some 20 us."""
    made_up = np.ones(queued.flat.numel(), dtype=np.float32)
    while True:
        heard = queued.cut(made_up)
        yield
        heard.is_finite(reading)
        heard.answer(session, reading)
        yield
        again = session.lay_out(session.settings.lookahead == "packed")
        yield
        groups, reads = arrange([again], session.config.logit_shift)
        yield
        pack(groups[0], reads[0], Sheet(shape_of(groups[0], len(reads[0]))))
        yield
