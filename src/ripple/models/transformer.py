"""The one network of the dense family: a Llama block without causality, with a few flags.

It runs a `Forward` and returns the final hidden states of the rows that are read; `logits` projects
them. Numerics follow the released code of each family, see `ModelConfig.rope_fp32`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ripple.models.attention import Visibility, attend_branches, attend_live, visibility
from ripple.models.forward import Forward
from ripple.models.kv import KVStore
from ripple.models.records import LayerWeights, ModelConfig, Weights

Tensor = torch.Tensor


class Transformer:
    """A bidirectional transformer on one device. `fused=False` multiplies q, k, v, gate and up one by one."""

    def __init__(self, config: ModelConfig, weights: Weights, fused: bool = True) -> None:
        self.config = config
        self.weights = weights
        self.fused = fused
        self.device = weights.embed.device
        self.dtype = weights.embed.dtype
        self._cos = self._sin = torch.empty(0, config.head_dim)

    @property
    def has_static_shapes(self) -> bool:
        """Whether a forward's tensors depend on its shape alone, so that a CUDA graph can hold it."""
        return False

    @torch.inference_mode()
    def hidden(self, fwd: Forward, store: KVStore | None = None) -> Tensor:
        """Run the forward; return the normalised hidden states [n_read, d] of the rows in `fwd.read`."""
        cos, sin = self._rotation(fwd.pos)
        seen = visibility(fwd)
        x = self.weights.embed[fwd.ids]  # [S, T, d]
        for number, layer in enumerate(self.weights.layers):
            x = x + self._attention(number, layer, x, cos, sin, fwd, seen, store)
            x = x + self._mlp(layer, x)
        rows = x.reshape(-1, x.shape[-1])[fwd.read]
        return rms_norm(rows, self.weights.norm, self.config.norm_eps)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Project hidden states [n, d] onto the vocabulary."""
        return F.linear(hidden, self.weights.head)

    def _attention(
        self, number: int, layer: LayerWeights, x: Tensor, cos: Tensor, sin: Tensor,
        fwd: Forward, seen: Visibility, store: KVStore | None,
    ) -> Tensor:  # fmt: skip
        c = self.config
        n_canvases, n_rows, _ = x.shape
        normed = rms_norm(x, layer.attn_norm, c.norm_eps)
        widths = [c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim, c.n_kv_heads * c.head_dim]
        q, k, v = (
            part.view(n_canvases, n_rows, -1, c.head_dim).transpose(1, 2)  # [S, heads, T, D]
            for part in self._linear(normed, layer.qkv, layer.qkv_bias, widths)
        )
        q, k = self._rotate(q, cos, sin), self._rotate(k, cos, sin)

        r = fwd.n_live
        keys, values = k[:, :, :r], v[:, :, :r]
        if fwd.keep is not None:
            assert store is not None, "a forward that keeps its keys needs a store"
            store.write(number, fwd.keep, fwd.pos[:, :r], keys, values)
        if fwd.slots is not None:
            assert store is not None, "a forward on frozen keys needs a store"
            keys, values = store.overlay(
                number, fwd.slots, fwd.slots_in_order, fwd.pos[:, :r], keys, values, fwd.n_keys
            )
        out = attend_live(q[:, :, :r], keys, values, seen)
        if fwd.branch_len:
            out_branch = attend_branches(q[:, :, r:], keys, values, k[:, :, r:], v[:, :, r:], seen)
            out = torch.cat([out, out_branch], dim=2)
        return F.linear(out.transpose(1, 2).reshape(n_canvases, n_rows, -1), layer.out)

    def _mlp(self, layer: LayerWeights, x: Tensor) -> Tensor:
        normed = rms_norm(x, layer.mlp_norm, self.config.norm_eps)
        gate, up = self._linear(normed, layer.gate_up, None, [self.config.d_ff, self.config.d_ff])
        return F.linear(F.silu(gate) * up, layer.down)

    def _linear(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, widths: list[int]
    ) -> tuple[Tensor, ...]:
        """Multiply by a stack of matrices, all at once or one by one."""
        if self.fused:
            return torch.split(F.linear(x, weight, bias), widths, dim=-1)
        biases = (None,) * len(widths) if bias is None else torch.split(bias, widths)
        return tuple(F.linear(x, w, b) for w, b in zip(torch.split(weight, widths), biases, strict=True))

    def _rotation(self, pos: Tensor) -> tuple[Tensor, Tensor]:
        """Return cos and sin [S, 1, T, head_dim] of the rows."""
        cos, sin = self._tables()
        return cos[pos][:, None], sin[pos][:, None]

    def _tables(self) -> tuple[Tensor, Tensor]:
        """Return cos and sin [positions, head_dim], computed once."""
        if len(self._cos) == 0:
            n = max(self.config.max_positions, 1)
            half = torch.arange(0, self.config.head_dim, 2, dtype=torch.int64).float() / self.config.head_dim
            inverse = 1.0 / (self.config.rope_theta**half)
            angle = torch.arange(n).float()[:, None] * inverse
            angle = torch.cat([angle, angle], dim=-1).to(self.device)
            kept = torch.float32 if self.config.rope_fp32 else self.dtype
            self._cos, self._sin = angle.cos().to(kept), angle.sin().to(kept)
        return self._cos, self._sin

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate half-split pairs, in fp32 or in the activation dtype as the family's code does."""
        y = x.float() if self.config.rope_fp32 else x
        first, second = y.chunk(2, dim=-1)
        y = y * cos + torch.cat([-second, first], dim=-1) * sin
        return y.to(x.dtype)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise in fp32, cast back, then scale, in this order."""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return weight * y.to(x.dtype)
