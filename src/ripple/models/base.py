"""What the engine knows about a model: its config, the tensors of one forward, and the two calls it makes.

A forward runs S canvases at once. A batch row is one canvas. Its tokens are R *live* rows (positions whose
hidden states are recomputed), then G branches of W rows each, every branch a private copy of the window at
the window's own positions:

    [ live row | live row | ... | branch 0: W rows | branch 1: W rows | ... ]

Keys are addressed by absolute position. Live rows see the keys of their canvas. A branch row sees the keys
of its canvas except a hidden range, and the rows of its own branch; no row ever sees another branch. For a
branch the hidden range is the window; for a shadow row it is the one token under judgement. Where attention
is block-causal, a limit per row says how many of the canvas's keys it sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ripple.canvas import Ints

if TYPE_CHECKING:  # listings read configs without torch
    import torch
    from torch import Tensor

    from ripple.models.kv_store import KVStore


@dataclass(frozen=True, slots=True)
class Yarn:
    """YaRN's change of the rotary frequencies, see rotary.py."""

    factor: float  # by which low frequencies are divided
    n_positions: int  # of the training before the change
    beta_fast: float  # a pair that turns more often over those positions stays
    beta_slow: float  # one that turns less often is divided


@dataclass(frozen=True, slots=True)
class QueryScale:
    """Queries are multiplied by 1 + beta * ln(1 + floor(position / n_positions))."""

    beta: float
    n_positions: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One Llama-like diffusion model. A family that needs more facts subclasses this in its own file."""

    family: str  # a key of ripple.models.families.FAMILIES
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int  # fewer than n_heads: grouped queries
    head_dim: int
    d_ff: int
    vocab_size: int  # rows of embedding and head, unused ones included
    norm_eps: float
    rope_theta: float
    rope_fp32: bool  # True: rotate in fp32 and cast back (LLaDA); False: in the activation dtype (Dream)
    qkv_bias: bool
    tied_head: bool  # the head is the embedding
    logit_shift: int  # 0: row i predicts token i (LLaDA); 1: row i predicts token i + 1 (Dream)
    mask_id: int
    end_ids: tuple[int, ...]  # tokens that end a response, the one that fills the canvas first
    max_positions: int
    # Rows see keys up to the end of their own block of this many positions, counted from 0; None: every key.
    attention_block: int | None = None
    # Rows before the open block see keys up to themselves. Blocks are counted from the prompt's end, and the
    # first token of each is predicted by the row before it.
    causal_context: bool = False
    qk_norm: bool = False  # queries and keys are normalised per head before they are rotated
    rotary_dim: int | None = None  # leading numbers of a head that are rotated; None: all
    yarn: Yarn | None = None
    query_scale: QueryScale | None = None

    def limits(self, pos: Ints, n_keys: int, open_start: int = 0) -> Ints | None:
        """Return for rows at `pos` how many keys of a canvas of `n_keys` each sees; None: all of them.

        `open_start` is where the open block begins.
        """
        if self.attention_block is None:
            return None
        if self.causal_context:
            return np.where(pos < open_start, pos + 1, n_keys)
        block_ends: Ints = (pos // self.attention_block + 1) * self.attention_block
        return np.minimum(block_ends, n_keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsConfig(ModelConfig):
    """A model whose later layers have experts beside a shared one."""

    n_dense: int  # first layers, which have no experts
    n_experts: int
    n_chosen: int  # experts of a row
    expert_ff: int
    n_shared: int  # experts that every row goes to, as one of n_shared * expert_ff
    n_groups: int  # experts are chosen from the best few of so many groups
    n_groups_chosen: int
    routed_scale: float  # of the chosen experts' weights, which add up to 1 before


@dataclass(slots=True)
class ForwardInputs:
    """The tensors of one forward. S canvases, T = R + G * W rows each, padded with copies of real rows."""

    ids: Tensor  # [S, T] int64
    pos: Tensor  # [S, T] int64, absolute positions
    n_live: int  # R
    branch_len: int  # W; 0 when no canvas has a branch
    n_keys: int  # the longest canvas, N
    key_len: Tensor | None  # [S] canvas lengths; None when all are N
    hide: Tensor | None  # [S, G * W, 2] int64: keys in [lo, hi) are hidden from that branch row
    own_len: Tensor | None  # [S, G] rows of a branch that exist; None when all have W
    read: Tensor  # [n] indices into the S * T rows: whose hidden state is wanted
    slots: Tensor | None = None  # [S] where the frozen keys lie; None: every key is live, in order
    slots_in_order: bool = False  # slots are 0, 1, ... S-1: the store can be used in place
    shares_slots: bool = False  # several rows read one slot (exact lookahead): none of them may write to it
    store_slots: Tensor | None = None  # [S] slots that take the keys of this forward; None: none is stored
    limit: Tensor | None = None  # [S, T] int64: row i sees canvas keys in [0, limit_i); None: all
    hidden: Tensor | None = None  # [S, N] int64: keys hidden from all branches of a canvas (thin ones)


class Model(Protocol):
    """A network on one device, as the engine uses it."""

    @property
    def config(self) -> ModelConfig:
        """Shapes and special tokens."""

    @property
    def device(self) -> torch.device:
        """Where inputs must lie and outputs will."""

    @property
    def dtype(self) -> torch.dtype:
        """Of hidden states, logits and keys."""

    @property
    def has_static_shapes(self) -> bool:
        """Whether a forward's tensors depend on its shape alone, so that a CUDA graph can hold it."""

    def hidden(self, inputs: ForwardInputs, store: KVStore | None = None) -> Tensor:
        """Return the final, normalised hidden states [n_read, d] of the rows in `inputs.read`."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Project hidden states [n, d] onto the vocabulary."""
