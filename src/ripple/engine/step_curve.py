"""What a forward costs at so many rows, measured on the model at hand, and how many rows that affords.

At batch 1 a GPU waits for the weights, and rows are almost free; with many requests it computes, and each row
costs its share. `lookahead_budget` says how much dearer a tick may be than one with a few rows for everybody;
the curve says how many rows that leaves for windows and branches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ripple.canvas import MOST_ROWS, Canvas, Window
from ripple.engine.layout import AskLayout, build_layout
from ripple.look import Ask

if TYPE_CHECKING:
    from ripple.engine.runner import Runner
    from ripple.engine.work import Work

BLOCK = 32  # rows of one canvas in the measurement
CANVASES = (1, 2, 4, 8, 16, 32, 64)
REPEATS = 3  # after two that compile and capture
FEW_ROWS = 8  # of one request: the least that a tick is expected to compute
PLENTY = 2048  # more rows than a request ever asks for


@dataclass(frozen=True)
class StepCurve:
    """Seconds of a forward by the rows it computes, straight lines between what was measured."""

    seconds: Mapping[int, float]

    @classmethod
    def measure(cls, runner: Runner) -> StepCurve:
        """Time forwards of 32 to 2,048 rows; the fastest of three counts."""
        return cls({n * BLOCK: _seconds(runner, n) for n in CANVASES})

    def at(self, rows: float) -> float:
        """Return the seconds of a forward; beyond the last point every row costs as much as there."""
        known = sorted(self.seconds)
        if rows <= known[-1]:
            return float(np.interp(rows, known, [self.seconds[n] for n in known]))
        return self.seconds[known[-1]] * rows / known[-1]

    def rows_for(self, seconds: float) -> int:
        """Return the most rows that a forward of so many seconds computes."""
        low, high = 0, 1
        while self.at(high) <= seconds:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.at(middle) <= seconds else (low, middle)
        return low


def row_limit(curve: StepCurve, work: Sequence[Work], n_coming: int, budget: float) -> int:
    """Return how many rows each request of the next tick may have for its window and its branches.

    A tick may cost the share `budget` more than one with a few window rows for everybody. What a request
    computes outside its window, without a cache the rest of the canvas, is taken to be as in the last tick.
    """
    if not work or n_coming < 1:
        return MOST_ROWS
    outside = n_coming * math.fsum(_rows_outside(one) for one in work) / len(work)
    most = curve.rows_for((1 + budget) * curve.at(outside + n_coming * FEW_ROWS))
    limit = max(FEW_ROWS, int((most - outside) // n_coming))
    return limit if limit < PLENTY else MOST_ROWS


def _rows_outside(work: Work) -> int:
    """Return how many rows a request computes outside its window; a cache's openings are exceptions."""
    row, window = work.layout.base.row, work.ask.window
    is_opening = row.slot is None and row.store_slot is not None
    return 0 if is_opening else max(0, len(row.pos) - (window.stop - window.start))


def _seconds(runner: Runner, n_canvases: int) -> float:
    layouts = [_masks(runner) for _ in range(n_canvases)]
    times = []
    for _ in range(2 + REPEATS):
        start = time.perf_counter()
        runner.hidden_states(layouts).sum().item()  # waits for the device
        times.append(time.perf_counter() - start)
        runner.release_inputs()
    return min(times[2:])


def _masks(runner: Runner) -> AskLayout:
    config = runner.config
    prompt = np.zeros(config.logit_shift, dtype=np.int64)
    canvas = Canvas(prompt, BLOCK, BLOCK, config.mask_id)
    n = len(canvas.ids)
    return build_layout(canvas, Ask(Window(config.logit_shift, n)), np.arange(n), config, "packed")
