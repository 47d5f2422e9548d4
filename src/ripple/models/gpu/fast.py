"""The dense network with GPU kernels: at most one launch between two matrix products.

Under a cache, keys and values of live rows are written into the key store and attention reads them there, so
a cached step reads each frozen key once and copies none; without a cache, from the q-k-v product.
Every tensor's shape depends on the forward's shape alone, so that a CUDA graph can hold the whole forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ripple.models.base import ForwardInputs
from ripple.models.dense import LayerWeights
from ripple.models.gpu import attention_hopper, attention_kernel, skinny
from ripple.models.gpu.kernels import Rotation, add_norm, rotate_and_store, silu_mul
from ripple.models.kv_store import KVStore
from ripple.models.transformer import Transformer

Tensor = torch.Tensor
Normed = Any  # rows as the next product takes them: [n, d], or in fp8
Parts = Any  # what a product left to be added: nothing, [p, n, d] in fp32, or sums in fp8
HALVED_ROWS = 320  # beyond, whole products are as fast or faster
# Whether products of bf16 can be had in fp32: since torch 2.8.
GIVES_FP32 = "dtype" in torch.ops.aten.bmm.overloads()  # type: ignore[no-untyped-call]


class FastTransformer(Transformer):
    """A transformer on a GPU. Exact lookahead, whose canvases share a slot, and thin branches run plainly."""

    @property
    def has_static_shapes(self) -> bool:
        """Whether a forward's tensors depend on its shape alone, so that a CUDA graph can hold it."""
        return self.device.type == "cuda"

    @torch.inference_mode()
    def hidden(self, inputs: ForwardInputs, store: KVStore | None = None) -> Tensor:
        """Return the final, normalised hidden states [n_read, d] of the rows in `inputs.read`."""
        if inputs.shares_slots or inputs.hidden is not None or not self.fused:
            return super().hidden(inputs, store)
        keys = _Keys(inputs, store, self)
        if inputs.hide is not None and inputs.own_len is None:
            n_branches = inputs.hide.shape[1] // inputs.branch_len
            inputs.own_len = inputs.ids.new_full((len(inputs.ids), n_branches), inputs.branch_len)
        cos, sin, scale = self._tables()
        c = self.config
        x = self.weights.embed[inputs.ids.reshape(-1)]  # [S * T, d]
        parts: Parts = None  # of the last product, still to be added to x
        last = len(self.weights.layers) - 1
        for number, layer in enumerate(self.weights.layers):
            stores = keys.stores(number)
            norms = None if layer.q_norm is None or layer.k_norm is None else (layer.q_norm, layer.k_norm)
            rotation = Rotation(
                inputs.pos, cos, sin, stores, keys.slots, inputs.n_live, c.n_heads, c.head_dim, c.rope_fp32,
                norms, c.norm_eps, scale,
            )  # fmt: skip
            qkv = self.rotated_qkv(layer, self.add_norm(x, parts, layer.attn_norm), rotation)
            k, v = stores or self._live_keys(qkv, inputs)
            if keys.all_live:
                out = self._attend_all_live(qkv, k, v, keys, inputs)
            else:
                attend = _attention(qkv, k, inputs.limit, has_few_rows=inputs.slots is not None)
                out = attend(qkv, k, v, keys.slots, keys.key_len, inputs, c.n_heads)
            if number == last:  # from here on only the rows that are read matter
                x, out = x[inputs.read], out[inputs.read]
            parts = self.out_parts(x, layer, out)
            parts = self.feed_forward_parts(x, layer, self.add_norm(x, parts, layer.mlp_norm))
        return self.last_norm(x, parts)

    # -- products, and the normalisations between them; another network may keep its rows otherwise --------

    def add_norm(self, x: Tensor, parts: Parts, weight: Tensor) -> Normed:
        """Add parts, if any, to x [n, d] in place; return its rows normalised, as products take them."""
        return add_norm(x, parts, weight, self.config.norm_eps)

    def last_norm(self, x: Tensor, parts: Parts) -> Tensor:
        """Add parts, if any, to x [n, d] and return its rows normalised, as the head takes them."""
        return add_norm(x, parts, self.weights.norm, self.config.norm_eps)

    def rotated_qkv(self, layer: LayerWeights, normed: Normed, rotation: Rotation) -> Tensor:
        """Return queries, keys and values, rotated; those of live rows are stored."""
        return _rotated_qkv(layer, normed, rotation)

    def out_parts(self, x: Tensor, layer: LayerWeights, out: Tensor) -> Parts:
        """Add what attention put out to x [n, d], or return it as fp32 parts [p, n, d] to be added."""
        return _add_product(x, out, layer.out)

    def feed_forward_parts(self, x: Tensor, layer: LayerWeights, normed: Normed) -> Parts:
        """Add a layer's feed-forward part to x [n, d], or return it as fp32 parts [p, n, d] to be added."""
        return _add_product(x, _gated(normed, layer.gate_up), layer.down)

    def _live_keys(self, qkv: Tensor, inputs: ForwardInputs) -> tuple[Tensor, Tensor]:
        """Return keys and values [S, kv heads, R, head_dim] where they are: in the product, in order."""
        c = self.config
        heads = qkv.view(*inputs.pos.shape, -1, c.head_dim)[:, : inputs.n_live, c.n_heads :].transpose(1, 2)
        return heads[:, : c.n_kv_heads], heads[:, c.n_kv_heads :]

    def _attend_all_live(
        self, qkv: Tensor, k: Tensor, v: Tensor, keys: _Keys, inputs: ForwardInputs
    ) -> Tensor:
        """Attend where every key is fresh: the library's kernel for the canvas, ours for branches."""
        c, r = self.config, inputs.n_live
        n_canvases, n_rows = inputs.pos.shape
        q = qkv.view(n_canvases, n_rows, -1, c.head_dim)[:, :r, : c.n_heads].transpose(1, 2)
        fresh = self._live_keys(qkv, inputs)
        out = F.scaled_dot_product_attention(q, *fresh, enable_gqa=c.n_heads != c.n_kv_heads)
        out = out.transpose(1, 2).reshape(n_canvases, r, -1)
        if n_rows > r:
            both = qkv.new_empty(n_canvases, n_rows, c.n_heads * c.head_dim)
            both[:, :r] = out
            attend = _attention(qkv, k, None, has_few_rows=True)
            out = attend(qkv, k, v, keys.slots, keys.key_len, inputs, c.n_heads, r, both)
        return out.view(n_canvases * n_rows, -1)


def _attention(qkv: Tensor, keys: Tensor, limit: Tensor | None, has_few_rows: bool) -> Callable[..., Tensor]:
    """Return the kernel for rows and keys; Hopper's is made for cached steps and for branches."""
    if has_few_rows and attention_hopper.fits(qkv, keys, limit):
        return attention_hopper.attend
    return attention_kernel.attend


def _rotated_qkv(layer: LayerWeights, normed: Tensor, rotation: Rotation) -> Tensor:
    """Return queries, keys and values, rotated; those of live rows are stored."""
    fits = skinny.can_rotate(len(normed), layer.qkv, rotation.head_dim)
    if rotation.stores and rotation.is_plain and fits:
        return skinny.rotated_qkv(normed, layer.qkv, layer.qkv_bias, rotation)
    if len(normed) <= HALVED_ROWS and layer.qkv_bias is None and len(layer.qkv) % 16 == 0:
        qkv = _wide_halves(normed, layer.qkv)
    else:
        qkv = F.linear(normed, layer.qkv, layer.qkv_bias)
    rotate_and_store(qkv, rotation)
    return qkv


def _wide_halves(x: Tensor, weight: Tensor) -> Tensor:
    """Return x @ weight.T, both halves of its columns computed at once.

    For a batched product the library picks other kernels: 7 and 25 % faster for 160 and 192 rows of LLaDA's
    q-k-v product, as fast for others.
    """
    (n, k), rows = weight.shape, len(x)
    out = x.new_empty(rows, n)
    halves = out.view(rows, 2, n // 2).transpose(0, 1)
    torch.bmm(x.expand(2, rows, k), weight.view(2, n // 2, k).transpose(1, 2), out=halves)
    return out


def _add_product(x: Tensor, y: Tensor, weight: Tensor) -> Tensor | None:
    """Add y @ weight.T to x: at once, or as fp32 parts that the next normalisation adds."""
    if skinny.fits(len(x), weight):
        return skinny.linear_parts(y, weight)
    if len(x) <= HALVED_ROWS and weight.shape[1] % 16 == 0 and GIVES_FP32:
        return _deep_halves(y, weight)
    x.addmm_(y, weight.t())
    return None


def _deep_halves(y: Tensor, weight: Tensor) -> Tensor:
    """Return y @ weight.T as the parts [2, rows, n] of both halves of the inner dimension, computed at once.

    The library's kernels occupy too little of the device for so narrow a product, or reduce its parts in an
    extra launch.
    """
    n, k = weight.shape
    left, right = y.view(len(y), 2, k // 2).transpose(0, 1), weight.view(n, 2, k // 2).permute(1, 2, 0)
    if y.dtype == torch.float32:
        return torch.bmm(left, right)
    return torch.bmm(left, right, out_dtype=torch.float32)


def _gated(x: Tensor, gate_up: Tensor) -> Tensor:
    if skinny.fits(len(x), gate_up):
        return skinny.gated(x, gate_up)
    return silu_mul(F.linear(x, gate_up))


class _Keys:
    """Where this forward's keys lie: in slots of the store, or only in the q-k-v product."""

    def __init__(self, inputs: ForwardInputs, store: KVStore | None, model: Transformer) -> None:
        n_canvases = len(inputs.ids)
        slots = inputs.slots if inputs.slots is not None else inputs.store_slots
        self._store = store if slots is not None else None
        assert slots is None or store is not None, "a forward on frozen keys needs a store"
        self.slots = torch.arange(n_canvases, device=model.device) if slots is None else slots
        # The library's attention takes no lengths and no limits: it is for whole canvases of one length.
        self.all_live = inputs.key_len is None and inputs.limit is None and inputs.n_live == inputs.n_keys
        key_len = inputs.key_len
        if key_len is None:
            key_len = torch.full((n_canvases,), inputs.n_keys, device=model.device)
        self.key_len = key_len

    def stores(self, number: int) -> tuple[Tensor, Tensor] | None:
        """Return a layer's stored keys and values [slots, kv heads, N, head_dim], if anything is stored."""
        return None if self._store is None else (self._store.k[number], self._store.v[number])
