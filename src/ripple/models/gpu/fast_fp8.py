"""The fp8 network with GPU kernels: as fast.py, but its rows are quantised where they are made.

Up to 64 rows are multiplied by kernels of our own, which apply the scales themselves. For more rows the
library multiplies as if there were none, which is its fastest way, and the next kernel applies them.
"""

from __future__ import annotations

import torch

from ripple.models.dense import SCALE, Fp8Layer, LayerWeights
from ripple.models.fp8 import Fp8Transformer
from ripple.models.gpu import skinny
from ripple.models.gpu.fast import FastTransformer
from ripple.models.gpu.fp8_kernels import Fp8Rows, Fp8Sums, add_norm, last_norm, quantise, silu_mul
from ripple.models.gpu.kernels import Rotation, rotate_and_store

Tensor = torch.Tensor
FAST_SUMS = True  # the library may add up e4m3 products with the tensor cores' own 14 bits


class FastFp8Transformer(FastTransformer, Fp8Transformer):
    """An fp8 network on a GPU."""

    def add_norm(self, x: Tensor, parts: Fp8Sums | None, weight: Tensor) -> Fp8Rows:
        """Add sums, if any, to x [n, d] in place; return its rows normalised and quantised."""
        return add_norm(x, parts, weight, self.config.norm_eps)

    def last_norm(self, x: Tensor, parts: Fp8Sums) -> Tensor:
        """Add sums to x [n, d] and return its rows normalised, as the head takes them."""
        return last_norm(x, parts, self.weights.norm, self.config.norm_eps)

    def rotated_qkv(self, layer: LayerWeights, normed: Fp8Rows, rotation: Rotation) -> Tensor:
        """Return queries, keys and values, rotated; those of live rows are stored."""
        assert isinstance(layer, Fp8Layer)
        rotation = rotation._replace(scales=(normed.scale, layer.qkv_scale, layer.qkv_bias))
        if rotation.stores and rotation.is_plain and self._can_rotate(normed, layer):
            return skinny.rotated_qkv(normed.numbers, layer.qkv, layer.qkv_bias, rotation)
        qkv = sums(normed.numbers, layer.qkv, self.dtype)
        rotate_and_store(qkv, rotation)
        return qkv

    def _can_rotate(self, rows: Fp8Rows, layer: Fp8Layer) -> bool:
        return skinny.can_rotate(len(rows.numbers), layer.qkv, self.config.head_dim)

    def out_parts(self, x: Tensor, layer: LayerWeights, out: Tensor) -> Fp8Sums:
        """Return what attention put out, multiplied, as sums to be added to x [n, d]."""
        assert isinstance(layer, Fp8Layer)
        return self._sums(quantise(out), layer.out, layer.out_scale)

    def feed_forward_parts(self, x: Tensor, layer: LayerWeights, normed: Fp8Rows) -> Fp8Sums:
        """Return a layer's feed-forward part as sums to be added to x [n, d]."""
        assert isinstance(layer, Fp8Layer)
        by = normed.scale, layer.gate_up_scale
        if skinny.fits(len(x), layer.gate_up):
            rows = quantise(skinny.gated(normed.numbers, layer.gate_up, by, self.dtype))
        else:
            rows = silu_mul(sums(normed.numbers, layer.gate_up, self.dtype), *by, self.dtype)
        return self._sums(rows, layer.down, layer.down_scale)

    def _sums(self, rows: Fp8Rows, matrix: Tensor, channel_scale: Tensor) -> Fp8Sums:
        if skinny.fits(len(rows.numbers), matrix):
            return Fp8Sums(skinny.linear_parts(rows.numbers, matrix), rows.scale, channel_scale)
        return Fp8Sums(sums(rows.numbers, matrix, self.dtype)[None], rows.scale, channel_scale)

    def product(self, layer: LayerWeights, name: str, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return x @ W.T + bias for one of a layer's matrices, where a forward runs plainly."""
        rows = quantise(x.reshape(-1, x.shape[-1]))
        out = sums(rows.numbers, getattr(layer, name), self.dtype).float()
        scale: Tensor = getattr(layer, name + SCALE)
        out = out * rows.scale[:, None] * scale[:, 0]
        if bias is not None:
            out = out + bias.float()
        return out.to(x.dtype).view(*x.shape[:-1], -1)


def sums(rows: Tensor, matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """Return rows [m, k] @ matrix [n, k].T of e4m3 numbers, summed in fp32 and rounded to `dtype`."""
    if rows.device.type != "cuda":
        return (rows.float() @ matrix.float().t()).to(dtype)
    one = _one(rows.device)
    return torch._scaled_mm(rows, matrix.t(), one, one, out_dtype=dtype, use_fast_accum=FAST_SUMS)


_ones: dict[torch.device, Tensor] = {}


def _one(device: torch.device) -> Tensor:
    if device not in _ones:
        _ones[device] = torch.ones((), device=device)
    return _ones[device]
