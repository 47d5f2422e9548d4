"""The same network with its GPU kernels: nothing between two matrix products costs more than one launch.

Under a cache, keys and values of live rows go straight into the key store and attention reads them there, so
a cached step touches each frozen key once and copies none. Without a cache they stay in the product. Every
tensor's shape depends on the forward's shape alone, so that engine/graphs.py can capture the whole of it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from ripple.models import attention_hopper, attention_kernel, skinny
from ripple.models.forward import Forward
from ripple.models.kernels import Rotation, add_norm, rotate_and_store, silu_mul
from ripple.models.kv import KVStore
from ripple.models.records import LayerWeights
from ripple.models.transformer import Transformer

Tensor = torch.Tensor
HALVED_ROWS = 320  # beyond, whole products are as fast or faster
# Whether products of bf16 can be had in fp32: since torch 2.8.
GIVES_FP32 = "dtype" in torch.ops.aten.bmm.overloads()  # type: ignore[no-untyped-call]


class FastTransformer(Transformer):
    """A transformer on a GPU. Strips that share a slot (exact lookahead) run on the plain path."""

    @property
    def has_static_shapes(self) -> bool:
        """Whether a forward's tensors depend on its shape alone, so that a CUDA graph can hold it."""
        return self.device.type == "cuda"

    @torch.inference_mode()
    def hidden(self, fwd: Forward, store: KVStore | None = None) -> Tensor:
        """Run the forward; return the normalised hidden states [n_read, d] of the rows in `fwd.read`."""
        if fwd.shares_slots or not self.fused:
            return super().hidden(fwd, store)
        keys = _Keys(fwd, store, self)
        if fwd.hidden is not None and fwd.own_len is None:
            n_branches = fwd.hidden.shape[1] // fwd.branch_len
            fwd.own_len = fwd.ids.new_full((len(fwd.ids), n_branches), fwd.branch_len)
        cos, sin = self._tables()
        c, eps = self.config, self.config.norm_eps
        x = self.weights.embed[fwd.ids.reshape(-1)]  # [S * T, d]
        parts: Tensor | None = None  # of the last product, still to be added to x
        last = len(self.weights.layers) - 1
        for number, layer in enumerate(self.weights.layers):
            stores = keys.stores(number)
            turn = Rotation(fwd.pos, cos, sin, stores, keys.slots, fwd.n_live, c.n_heads, c.rope_fp32)
            qkv = _rotated_qkv(layer, add_norm(x, parts, layer.attn_norm, eps), turn)
            k, v = stores or self._live_keys(qkv, fwd)
            if keys.all_live:
                out = self._attend_all_live(qkv, k, v, keys, fwd)
            else:
                attend = _attention(qkv, k, has_few_rows=fwd.slots is not None)
                out = attend(qkv, k, v, keys.slots, keys.key_len, fwd, c.n_heads)
            if number == last:  # from here on only the rows that are read matter
                x, out = x[fwd.read], out[fwd.read]
            parts = _add_product(x, out, layer.out)
            normed = add_norm(x, parts, layer.mlp_norm, eps)
            parts = _add_product(x, _gated(normed, layer.gate_up), layer.down)
        return add_norm(x, parts, self.weights.norm, eps)

    def _live_keys(self, qkv: Tensor, fwd: Forward) -> tuple[Tensor, Tensor]:
        """Return keys and values [S, kv heads, R, head_dim] where they are: in the product, in order."""
        c = self.config
        heads = qkv.view(*fwd.pos.shape, -1, c.head_dim)[:, : fwd.n_live, c.n_heads :].transpose(1, 2)
        return heads[:, : c.n_kv_heads], heads[:, c.n_kv_heads :]

    def _attend_all_live(self, qkv: Tensor, k: Tensor, v: Tensor, keys: _Keys, fwd: Forward) -> Tensor:
        """Attend where every key is fresh: the library's kernel for the canvas, ours for branches."""
        c, r = self.config, fwd.n_live
        n_canvases, n_rows = fwd.pos.shape
        q = qkv.view(n_canvases, n_rows, -1, c.head_dim)[:, :r, : c.n_heads].transpose(1, 2)
        fresh = self._live_keys(qkv, fwd)
        out = F.scaled_dot_product_attention(q, *fresh, enable_gqa=c.n_heads != c.n_kv_heads)
        out = out.transpose(1, 2).reshape(n_canvases, r, -1)
        if n_rows > r:
            both = qkv.new_empty(n_canvases, n_rows, c.n_heads * c.head_dim)
            both[:, :r] = out
            attend = _attention(qkv, k, has_few_rows=True)
            out = attend(qkv, k, v, keys.slots, keys.key_len, fwd, c.n_heads, r, both)
        return out.view(n_canvases * n_rows, -1)


def _attention(qkv: Tensor, keys: Tensor, has_few_rows: bool) -> Callable[..., Tensor]:
    """Return the kernel for rows and keys; Hopper's is made for cached steps and for branches."""
    if has_few_rows and attention_hopper.fits(qkv, keys):
        return attention_hopper.attend
    return attention_kernel.attend


def _rotated_qkv(layer: LayerWeights, normed: Tensor, turn: Rotation) -> Tensor:
    """Return queries, keys and values, rotated; those of live rows are stored."""
    if turn.stores and skinny.can_rotate(len(normed), layer.qkv, turn.cos.shape[1]):
        return skinny.rotated_qkv(normed, layer.qkv, layer.qkv_bias, turn)
    if len(normed) <= HALVED_ROWS and layer.qkv_bias is None and len(layer.qkv) % 16 == 0:
        qkv = _wide_halves(normed, layer.qkv)
    else:
        qkv = F.linear(normed, layer.qkv, layer.qkv_bias)
    rotate_and_store(qkv, turn)
    return qkv


def _wide_halves(x: Tensor, weight: Tensor) -> Tensor:
    """Return x @ weight.T, both halves of its columns computed at once.

    Asked for a batch, the library takes other kernels: 7 and 25 % faster for 160 and 192 rows of LLaDA's
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

    So narrow a product leaves the library's kernels too little to do at a time, or makes them add parts in a
    launch of their own.
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
    """Where this forward's keys lie: in slots of the store, or nowhere but in the product that made them."""

    def __init__(self, fwd: Forward, store: KVStore | None, model: Transformer) -> None:
        n_canvases = len(fwd.ids)
        slots = fwd.slots if fwd.slots is not None else fwd.keep
        self._store = store if slots is not None else None
        assert slots is None or store is not None, "a forward on frozen keys needs a store"
        self.slots = torch.arange(n_canvases, device=model.device) if slots is None else slots
        # The library's attention knows no lengths, so it is for canvases of one length.
        self.all_live = fwd.key_len is None and fwd.n_live == fwd.n_keys
        key_len = fwd.key_len
        if key_len is None:
            key_len = torch.full((n_canvases,), fwd.n_keys, device=model.device)
        self.key_len = key_len

    def stores(self, number: int) -> tuple[Tensor, Tensor] | None:
        """Return a layer's stored keys and values [slots, kv heads, N, head_dim], if anything is stored."""
        return None if self._store is None else (self._store.k[number], self._store.v[number])
