"""The network of the dense families in plain torch: a Llama block without causality, with a few flags.

Numerics follow the released code of each family, see `ModelConfig.rope_fp32`. A family with another
feed-forward part subclasses it and overrides `feed_forward`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ripple.models.attention import Masks, attend_branches, attend_live, attention_masks
from ripple.models.base import ForwardInputs, ModelConfig
from ripple.models.dense import LayerWeights, Weights
from ripple.models.kv_store import KVStore
from ripple.models.rotary import query_scales, rotary_tables

Tensor = torch.Tensor
RotaryTables = tuple[Tensor, Tensor, Tensor | None]  # cos, sin, and what queries are multiplied by


class Transformer:
    """A bidirectional transformer on one device. `fused=False` multiplies q, k, v, gate and up one by one."""

    def __init__(self, config: ModelConfig, weights: Weights, fused: bool = True) -> None:
        self.config = config
        self.weights = weights
        self.fused = fused
        self.device = weights.embed.device
        self.dtype = weights.embed.dtype
        self.matrix_dtype = weights.layers[0].qkv.dtype
        self._of_positions: RotaryTables | None = None

    @property
    def has_static_shapes(self) -> bool:
        """Whether a forward's tensors depend on its shape alone, so that a CUDA graph can hold it."""
        return False

    @torch.inference_mode()
    def hidden(self, inputs: ForwardInputs, store: KVStore | None = None) -> Tensor:
        """Return the final, normalised hidden states [n_read, d] of the rows in `inputs.read`."""
        cos, sin, scale = self._rotation(inputs.pos)
        masks = attention_masks(inputs)
        x = self.weights.embed[inputs.ids]  # [S, T, d]
        for number, layer in enumerate(self.weights.layers):
            x = x + self._attention(number, layer, x, (cos, sin, scale), inputs, masks, store)
            x = x + self.feed_forward(layer, x)
        rows = x.reshape(-1, x.shape[-1])[inputs.read]
        return rms_norm(rows, self.weights.norm, self.config.norm_eps)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Project hidden states [n, d] onto the vocabulary."""
        return F.linear(hidden, self.weights.head)

    def _attention(
        self, number: int, layer: LayerWeights, x: Tensor, rotation: RotaryTables,
        inputs: ForwardInputs, masks: Masks, store: KVStore | None,
    ) -> Tensor:  # fmt: skip
        c = self.config
        n_canvases, n_rows, _ = x.shape
        normed = rms_norm(x, layer.attn_norm, c.norm_eps)
        widths = [c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim, c.n_kv_heads * c.head_dim]
        q, k, v = (
            part.view(n_canvases, n_rows, -1, c.head_dim).transpose(1, 2)  # [S, heads, T, D]
            for part in self._products(layer, "qkv", normed, layer.qkv_bias, widths)
        )
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = rms_norm(q, layer.q_norm, c.norm_eps), rms_norm(k, layer.k_norm, c.norm_eps)
        cos, sin, scale = rotation
        q, k = self._rotate(q, cos, sin), self._rotate(k, cos, sin)
        if scale is not None:
            q = q * scale

        r = inputs.n_live
        keys, values = k[:, :, :r], v[:, :, :r]
        if inputs.store_slots is not None:
            assert store is not None, "a forward that stores its keys needs a store"
            store.write(number, inputs.store_slots, inputs.pos[:, :r], keys, values)
        if inputs.slots is not None:
            assert store is not None, "a forward on frozen keys needs a store"
            keys, values = store.overlay(
                number, inputs.slots, inputs.slots_in_order, inputs.pos[:, :r], keys, values, inputs.n_keys
            )
        out = attend_live(q[:, :, :r], keys, values, masks)
        if inputs.branch_len:
            out_branch = attend_branches(q[:, :, r:], keys, values, k[:, :, r:], v[:, :, r:], masks)
            out = torch.cat([out, out_branch], dim=2)
        return self.product(layer, "out", out.transpose(1, 2).reshape(n_canvases, n_rows, -1))

    def feed_forward(self, layer: LayerWeights, x: Tensor) -> Tensor:
        """Return what a layer's feed-forward part adds to x [S, T, d]."""
        return self.gated(layer, rms_norm(x, layer.mlp_norm, self.config.norm_eps))

    def gated(self, layer: LayerWeights, x: Tensor) -> Tensor:
        """Return the gated product of normalised rows."""
        d_ff = layer.down.shape[1]
        gate, up = self._products(layer, "gate_up", x, None, [d_ff, d_ff])
        return self.product(layer, "down", F.silu(gate) * up)

    def product(self, layer: LayerWeights, name: str, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return x @ W.T + bias for one of a layer's matrices."""
        return F.linear(x, getattr(layer, name), bias)

    def _products(
        self, layer: LayerWeights, name: str, x: Tensor, bias: Tensor | None, widths: list[int]
    ) -> tuple[Tensor, ...]:
        """Multiply by a stack of matrices, all at once or one by one."""
        if self.fused:
            return torch.split(self.product(layer, name, x, bias), widths, dim=-1)
        weight: Tensor = getattr(layer, name)
        biases = (None,) * len(widths) if bias is None else torch.split(bias, widths)
        return tuple(F.linear(x, w, b) for w, b in zip(torch.split(weight, widths), biases, strict=True))

    def _rotation(self, pos: Tensor) -> RotaryTables:
        """Return cos and sin [S, 1, T, rotary_dim] of the rows, and their queries' scale [S, 1, T, 1]."""
        cos, sin, scale = self._tables()
        return cos[pos][:, None], sin[pos][:, None], None if scale is None else scale[pos][:, None, :, None]

    def _tables(self) -> RotaryTables:
        """Return cos and sin [positions, rotary_dim] and the scale of queries [positions], computed once."""
        if self._of_positions is None:
            config = self.config
            tables = rotary_tables(config, self.device, torch.float32 if config.rope_fp32 else self.dtype)
            self._of_positions = (*tables, query_scales(config, self.device, self.dtype))
        return self._of_positions

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate half-split pairs, in fp32 or in the activation dtype as the family's code does."""
        n = cos.shape[-1]
        y = (x.float() if self.config.rope_fp32 else x)[..., :n]
        first, second = y.chunk(2, dim=-1)
        y = (y * cos + torch.cat([-second, first], dim=-1) * sin).to(x.dtype)
        return y if n == x.shape[-1] else torch.cat([y, x[..., n:]], dim=-1)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise in fp32, cast back, then scale, in this order."""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return weight * y.to(x.dtype)
