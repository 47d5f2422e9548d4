"""What one request wants of the next forward: the engine hands these to its runner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ripple.canvas import Ints
from ripple.engine.kl_history import KLEntry
from ripple.engine.layout import AskLayout
from ripple.look import Ask

Uniform = npt.NDArray[np.float64]  # in [0, 1)


@dataclass(slots=True)
class Work:
    """One request's part in a tick."""

    ask: Ask
    layout: AskLayout
    top: int  # most probable tokens per row
    shadow_tokens: Ints  # [n] the revealed tokens whose probability is wanted at the shadow rows
    kl: KLEntry | None  # where its previous looks are kept, if it wants the KL to them
    prompt_len: int
    temperature: float  # 0 is greedy
    uniform: Uniform | None  # [length] a number for each response position, when it samples
    rebuild: Callable[[], AskLayout]  # lays the same ask out again, for the host's warm-up
