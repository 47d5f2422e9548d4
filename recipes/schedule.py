"""When training is autoregressive, when the learning rate falls, and when it is time to stop."""

from __future__ import annotations

import time

from checkpoint import Progress

DECAY_SHARE = 0.35  # the last part of the time, over which the learning rate falls linearly
FLOOR = 0.02  # to this share of it
WARM_UP = 100  # steps of a session over which it rises


class Clock:
    """Measures training in seconds, or in steps where a run must not depend on the machine's speed."""

    def __init__(
        self,
        progress: Progress,
        stop_at: float,
        later_s: float,
        ar_s: float,
        steps: int = 0,
        ar_steps: int = 0,
    ) -> None:
        self.progress, self.stop_at, self.ar_s = progress, stop_at, ar_s
        self.steps, self.ar_steps = steps, ar_steps  # of this session; 0: go by time
        self.began = time.monotonic()
        self.before = progress.seconds
        self.session = 0  # steps of this session
        self.planned = self.before + (stop_at - self.began) + later_s  # seconds over all sessions
        self.ar_began: float | None = None

    def tick(self, phase: str) -> None:
        """Count one finished step."""
        self.session += 1
        self.progress.steps += 1
        self.progress.diffusion_steps += phase == "diffusion"
        self.progress.seconds = self.before + time.monotonic() - self.began
        if self.session == 5:
            self.ar_began = time.monotonic()  # by now everything is compiled

    def over(self) -> bool:
        """Say whether the session's training is done."""
        return self.session >= self.steps if self.steps else time.monotonic() >= self.stop_at

    def phase(self) -> str:
        """Return `ar` or `diffusion`; once diffusion has begun there is no way back."""
        if self.progress.diffusion_steps:
            return "diffusion"
        if self.steps:
            return "ar" if self.session < self.ar_steps else "diffusion"
        fresh = self.ar_began is None or time.monotonic() - self.ar_began < self.ar_s
        return "ar" if fresh else "diffusion"

    def scale(self) -> float:
        """Return the learning rate's factor now."""
        share = self.session / self.steps if self.steps else self.progress.seconds / self.planned
        down = 1.0 - (1.0 - FLOOR) * max(0.0, (share - (1 - DECAY_SHARE)) / DECAY_SHARE)
        warm = min(WARM_UP, self.steps // 10) if self.steps else WARM_UP
        return min(1.0, (self.session + 1) / warm) * max(FLOOR, down)
