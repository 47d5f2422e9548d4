"""Fast-dLLM's two caches, written out literally on transformers' own layers.

A block opens with a forward over the whole canvas that leaves every layer's keys and values behind. Each
further forward of the block recomputes only the live positions and takes all other keys from that opening.
Nothing of this is shared with `ripple`: no store, no overlay, no batching.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.reference.model import ReferenceModel

Keys = list[tuple[torch.Tensor, torch.Tensor]]  # per layer: keys and values [N, kv heads, D], keys rotated


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate [n, heads, D] half-split pairs by [n, D] angles."""
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos[:, None] + turned * sin[:, None]


@torch.no_grad()
def forward(model: ReferenceModel, ids: list[int], live: list[int], frozen: Keys | None) -> tuple[Any, Keys]:
    """Return logits of the live rows (shift not undone) and all keys, frozen ones for the other positions."""
    net: Any = model._model
    config = net.config
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    x = net.model.embed_tokens(torch.tensor([ids[p] for p in live]))
    cos, sin = (part[0] for part in net.model.rotary_emb(x[None], torch.tensor([live])))
    all_keys: Keys = []
    for number, layer in enumerate(net.model.layers):
        h = layer.input_layernorm(x)
        attention = layer.self_attn
        q = rotate(attention.q_proj(h).view(len(live), heads, -1), cos, sin)
        k = rotate(attention.k_proj(h).view(len(live), kv_heads, -1), cos, sin)
        v = attention.v_proj(h).view(len(live), kv_heads, -1)
        if frozen is not None:
            k_all, v_all = frozen[number][0].clone(), frozen[number][1].clone()
            for row, position in enumerate(live):
                k_all[position], v_all[position] = k[row], v[row]
            k, v = k_all, v_all
        all_keys.append((k, v))
        out = torch.zeros_like(q)
        for head in range(heads):
            group = head // (heads // kv_heads)
            scores = q[:, head] @ k[:, group].T / q.shape[-1] ** 0.5
            out[:, head] = torch.softmax(scores, dim=-1) @ v[:, group]
        x = x + attention.o_proj(out.reshape(len(live), -1))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return net.lm_head(net.model.norm(x)).numpy(), all_keys


def reference_cached_confidence(
    model: ReferenceModel, prompt: list[int], length: int, block: int, cache: str, tau: float
) -> tuple[list[int], int]:
    """Confidence decoding with a prefix or dual cache; return the response and the number of forwards."""
    mask, shift = model.mask_id, model.shift
    ids, nfe = list(prompt) + [mask] * length, 0
    n = len(ids)
    for start in range(len(prompt), n, block):
        stop = min(start + block, n)
        frozen: Keys | None = None
        while any(ids[p] == mask for p in range(start, stop)):
            if frozen is None:
                live = list(range(n))
            elif cache == "prefix":
                live = list(range(start - shift, n))
            else:
                live = list(range(start - shift, stop))
            logits, keys = forward(model, ids, live, frozen)
            nfe += 1
            frozen = keys if frozen is None else frozen
            best: dict[int, tuple[float, int]] = {}
            for p in range(start, stop):
                if ids[p] == mask:
                    row = logits[live.index(p - shift)].astype(np.float64)
                    row[mask] = -np.inf
                    p_row = np.exp(row - row.max())
                    p_row /= p_row.sum()
                    best[p] = (float(p_row.max()), int(p_row.argmax()))
            chosen = [p for p, (sure, _) in best.items() if sure >= tau]
            for p in chosen or [max(best, key=lambda p: (best[p][0], -p))]:
                ids[p] = best[p][1]
    return ids[len(prompt) :], nfe
