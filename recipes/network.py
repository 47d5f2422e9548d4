"""The network that is trained: a Llama-like block stack with the three released formats' flags.

Weights are kept in fp32 and cast to the activation dtype in each forward (bf16 on a GPU). One layer is a
pure function of tensors, so that torch.compile compiles it once per shape and not once per layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class Sizes:
    """What distinguishes one network from another."""

    family: str  # "llada" | "dream" | "sdar"
    d: int
    layers: int
    heads: int
    kv_heads: int
    ff: int
    rows: int = 2048
    positions: int = 1024
    theta: float = 10000.0

    @property
    def shift(self) -> int:
        """Return 1 where row i predicts token i + 1."""
        return 1 if self.family == "dream" else 0

    @property
    def bias(self) -> bool:
        """Return whether queries, keys and values have biases."""
        return self.family == "dream"

    @property
    def qk_norm(self) -> bool:
        """Return whether each head's queries and keys are normalised."""
        return self.family == "sdar"

    @property
    def blocks(self) -> bool:
        """Return whether rows see no further than the end of their own block, counted from position 0."""
        return self.family == "sdar"

    @property
    def eps(self) -> float:
        """Return the norm's epsilon."""
        return 1e-5 if self.family == "llada" else 1e-6


# 7.1M, 7.0M and 7.1M parameters: 14.2, 13.9 and 14.2 MB in bf16.
MODELS = {
    "tiny-llada": Sizes("llada", d=256, layers=8, heads=8, kv_heads=8, ff=640),
    "tiny-dream": Sizes("dream", d=256, layers=8, heads=8, kv_heads=4, ff=704),
    "tiny-sdar": Sizes("sdar", d=256, layers=8, heads=8, kv_heads=8, ff=640),
}
SMOKE = {
    "tiny-llada": Sizes("llada", d=64, layers=2, heads=4, kv_heads=4, ff=128),
    "tiny-dream": Sizes("dream", d=64, layers=2, heads=4, kv_heads=2, ff=128),
    "tiny-sdar": Sizes("sdar", d=64, layers=2, heads=4, kv_heads=4, ff=128),
}
# The roles of a layer's tensors; biases and the norms of heads only where the family has them.
MATRICES = ("q", "k", "v", "out", "gate", "up", "down")
VECTORS = ("attn_norm", "mlp_norm")
BIASES = ("q_bias", "k_bias", "v_bias")
HEAD_NORMS = ("q_norm", "k_norm")


Keys = tuple[Tensor, Tensor]  # rotated keys and values of one layer, [batch, kv heads, positions, size]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise in fp32, cast back, then scale."""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return y.to(x.dtype) * weight.to(x.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return (x.float() * cos + turned.float() * sin).to(x.dtype)


def layer(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    w: dict[str, Tensor],
    heads: int,
    kv_heads: int,
    eps: float,
    causal: bool,
    stale: Keys | None = None,
    live: Tensor | None = None,
    mask: Tensor | None = None,
) -> tuple[Tensor, Keys]:
    """Apply one block to [batch, positions, d]; return its output and its keys and values.

    Where `live` [batch, positions] is false, attention reads the stale keys and values of an earlier forward.
    `mask` [positions, positions] says which keys (second) each row (first) sees; without it, all.
    """
    batch, n, d = x.shape
    size = d // heads
    h = rms_norm(x, w["attn_norm"], eps)
    qkv = torch.cat((w["q"], w["k"], w["v"])).to(x.dtype)
    bias = torch.cat((w["q_bias"], w["k_bias"], w["v_bias"])).to(x.dtype) if "q_bias" in w else None
    q, k, v = F.linear(h, qkv, bias).split((d, kv_heads * size, kv_heads * size), dim=-1)
    q, k = q.view(batch, n, heads, size), k.view(batch, n, kv_heads, size)
    if "q_norm" in w:
        q, k = rms_norm(q, w["q_norm"], eps), rms_norm(k, w["k_norm"], eps)
    q, k = _rotate(q.transpose(1, 2), cos, sin), _rotate(k.transpose(1, 2), cos, sin)
    v = v.view(batch, n, kv_heads, size).transpose(1, 2)
    if stale is not None and live is not None:
        fresh = live[:, None, :, None]
        k, v = torch.where(fresh, k, stale[0]), torch.where(fresh, v, stale[1])
    own = (k, v)
    if kv_heads != heads:
        k = k.repeat_interleave(heads // kv_heads, dim=1)
        v = v.repeat_interleave(heads // kv_heads, dim=1)
    # No mask tensor where none is needed: any mask moves attention off the flash kernel and halves the speed.
    a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
    x = x + F.linear(a.transpose(1, 2).reshape(batch, n, d), w["out"].to(x.dtype))
    h = rms_norm(x, w["mlp_norm"], eps)
    gate, up = F.linear(h, torch.cat((w["gate"], w["up"])).to(x.dtype)).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * up, w["down"].to(x.dtype)), own


class Network(nn.Module):
    """Embedding, blocks, final norm and an untied head."""

    def __init__(self, sizes: Sizes, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.sizes = sizes
        self.dtype = dtype  # of activations
        d, size = sizes.d, sizes.d // sizes.heads
        kv = sizes.kv_heads * size
        shapes = {
            "q": (d, d), "k": (kv, d), "v": (kv, d), "out": (d, d),
            "gate": (sizes.ff, d), "up": (sizes.ff, d), "down": (d, sizes.ff),
        }  # fmt: skip
        self.embed = nn.Parameter(torch.randn(sizes.rows, d) * 0.02)
        self.head = nn.Parameter(torch.randn(sizes.rows, d) * 0.02)
        self.norm = nn.Parameter(torch.ones(d))
        self.blocks = nn.ModuleList()
        depth = 1 / math.sqrt(2 * sizes.layers)
        for _ in range(sizes.layers):
            block = nn.ParameterDict()
            for role in MATRICES:
                scale = depth if role in ("out", "down") else 1.0
                block[role] = nn.Parameter(torch.randn(shapes[role]) * scale / math.sqrt(shapes[role][1]))
            for role in VECTORS:
                block[role] = nn.Parameter(torch.ones(d))
            for role in BIASES if sizes.bias else ():
                block[role] = nn.Parameter(torch.zeros(shapes[role[0]][0]))
            for role in HEAD_NORMS if sizes.qk_norm else ():
                block[role] = nn.Parameter(torch.ones(size))
            self.blocks.append(block)
        angles = torch.outer(
            torch.arange(sizes.positions).float(), sizes.theta ** (-torch.arange(0, size, 2).float() / size)
        )
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def hidden(
        self, ids: Tensor, causal: bool = False, positions: Tensor | None = None, run: object = None,
        mask: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Return the final, normalised hidden states of [batch, positions] ids."""
        return self.forward_all(ids, causal, positions, run, mask=mask)[0]

    def forward_all(
        self, ids: Tensor, causal: bool = False, positions: Tensor | None = None, run: object = None,
        stale: list[Keys] | None = None, live: Tensor | None = None, mask: Tensor | None = None,
    ) -> tuple[Tensor, list[Keys]]:  # fmt: skip
        """Return hidden states and all layers' keys; with `stale` ones, only `live` rows have fresh keys."""
        apply = layer if run is None else run
        assert callable(apply)
        s = self.sizes
        x = F.embedding(ids, self.embed).to(self.dtype)
        at = slice(0, ids.shape[1]) if positions is None else positions
        cos, sin = self.cos[at], self.sin[at]
        keys = []
        for number, block in enumerate(self.blocks):
            old = None if stale is None else stale[number]
            w = dict(block.items())
            x, own = apply(x, cos, sin, w, s.heads, s.kv_heads, s.eps, causal, old, live, mask)
            keys.append(own)
        return rms_norm(x, self.norm, s.eps), keys

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of hidden states, in the activation dtype."""
        return F.linear(hidden, self.head.to(hidden.dtype))


def weighted_loss(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted mean cross-entropy; compiled apart from the model (together: a compiler bug)."""
    loss = F.cross_entropy(logits.float(), target, reduction="none")
    return (loss * weight).sum() / weight.sum().clamp(min=1.0)
