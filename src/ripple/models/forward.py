"""What a model is asked to run: one forward over S canvases, each with its own what-ifs.

A row of the batch is one canvas. Its tokens are R *live* rows (positions whose states are recomputed), then
G branches of W rows each, every branch a private copy of the window at the window's own positions:

    [ live row | live row | ... | branch 0: W rows | branch 1: W rows | ... ]

Keys are addressed by absolute position. Live rows see every key of their canvas. A branch row sees the keys
of its canvas except a hidden range, and the rows of its own branch; no row ever sees another branch.
For a branch the hidden range is the window; for a shadow row it is the one token under judgement.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(slots=True)
class Forward:
    """The tensors of one forward. S canvases, T = R + G * W rows each, padded with copies of real rows."""

    ids: torch.Tensor  # [S, T] int64
    pos: torch.Tensor  # [S, T] int64, absolute positions
    n_live: int  # R
    branch_len: int  # W; 0 when no canvas has a branch
    n_keys: int  # the longest canvas, N
    key_len: torch.Tensor | None  # [S] canvas lengths; None when all are N
    hidden: torch.Tensor | None  # [S, G * W, 2] int64: keys in [lo, hi) are invisible to that branch row
    own_len: torch.Tensor | None  # [S, G] rows of a branch that exist; None when all have W
    read: torch.Tensor  # [n] indices into the S * T rows: whose hidden state is wanted
    slots: torch.Tensor | None = None  # [S] where the frozen keys lie; None: every key is live, in order
    slots_in_order: bool = False  # slots are 0, 1, ... S-1: the store can be used in place
    shares_slots: bool = False  # several rows read one slot (exact lookahead): none of them may write to it
    keep: torch.Tensor | None = None  # [S] slots that take the keys of this forward; None: keep nothing
