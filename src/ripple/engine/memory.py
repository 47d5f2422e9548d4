"""What a request's model said last time, so that KLASS can ask how much it moved.

Kept on the device as log-probabilities of the response's positions; only requests that want KL have one.
"""

from __future__ import annotations

import math

import torch

from ripple.canvas import Ints
from ripple.engine.plan import Draft, Reading
from ripple.engine.stats import KL_FLOOR, kl_to

Seen = tuple[Ints, torch.Tensor]  # (response indices [n], log-probabilities [n, V])


class LookMemory:
    """The previous look at every response position, updated when the next ask says which draft was kept."""

    def __init__(self, length: int, prompt_len: int) -> None:
        self.length = length
        self.prompt_len = prompt_len
        self._before: torch.Tensor | None = None  # [L, V]; before the first look every probability is 0
        self._drafts: list[Seen] = []
        self._ahead: Seen | None = None

    def compare(self, reading: Reading, follows: int, logp: torch.Tensor) -> list[torch.Tensor]:
        """Return the KL of base, branches and ahead against the previous look, and remember this one."""
        if self._before is None:
            shape = (self.length, logp.shape[1])
            self._before = torch.full(shape, math.log(KL_FLOOR), device=logp.device)
        self._keep(follows)
        kls = []
        self._drafts = []
        for draft in (reading.base, *reading.branches):
            kl, seen = self._one(draft, logp)
            kls.append(kl)
            self._drafts.append(seen)
        self._ahead = None
        if reading.ahead is not None:
            kl, self._ahead = self._one(reading.ahead, logp)
            kls.append(kl)
        return kls

    def _one(self, draft: Draft, logp: torch.Tensor) -> tuple[torch.Tensor, Seen]:
        assert self._before is not None
        index = draft.pos - self.prompt_len
        kl, log_now = kl_to(logp[draft.rows], self._before[torch.from_numpy(index)])
        return kl, (index, log_now)

    def _keep(self, follows: int) -> None:
        """Write the look that the decoder went on from into the memory."""
        assert self._before is not None
        kept = self._drafts[follows : follows + 1] + ([self._ahead] if self._ahead else [])
        for index, log_now in kept:
            self._before[torch.from_numpy(index)] = log_now
