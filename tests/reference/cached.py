"""Fast-dLLM's two caches and dKV-Cache's decode variant, literally, on transformers' own layers.

With the first two, a block opens with a forward over the whole canvas that leaves every layer's keys and
values behind; each further forward of the block recomputes only the live positions and takes all other keys
from that opening. With dKV-Cache every forward leaves the keys of what it recomputed. Nothing of this
is shared with `ripple`: no store, no overlay, no batching.
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
    """Confidence decoding with a prefix or dual cache; return the response and the number of forwards.

    `dual-keep` computes the prompt's keys once, in the first forward of all.
    """
    mask, shift = model.mask_id, model.shift
    ids, nfe = list(prompt) + [mask] * length, 0
    n = len(ids)
    first: Keys | None = None
    for start in range(len(prompt), n, block):
        stop = min(start + block, n)
        frozen: Keys | None = None
        while any(ids[p] == mask for p in range(start, stop)):
            if frozen is None and first is not None and cache == "dual-keep":
                live = list(range(len(prompt) - shift, n))
            elif frozen is None:
                live = list(range(n))
            elif cache == "prefix":
                live = list(range(start - shift, n))
            else:
                live = list(range(start - shift, stop))
            logits, keys = forward(model, ids, live, first if frozen is None else frozen)
            nfe += 1
            frozen = keys if frozen is None else frozen
            if cache == "dual-keep":
                first = first or keys  # the prompt's keys are taken from here
            commit_confident(ids, start, stop, logits, live, shift, mask, tau)
    return ids[len(prompt) :], nfe


def reference_fast_dllm_dream(
    model: ReferenceModel, prompt: list[int], length: int, block: int, cache: str, tau: float
) -> tuple[list[int], int]:
    """Fast-dLLM's released way for models with a logit shift; return the response and the forwards.

    The opening forward of a block commits the block's first token and nothing else. All further forwards feed
    the block from its first position on, and with the prefix cache all that follows; everything before,
    the row that predicted the first token included, keeps the keys of the opening.
    """
    mask, shift = model.mask_id, model.shift
    ids, nfe = list(prompt) + [mask] * length, 0
    n = len(ids)
    for start in range(len(prompt), n, block):
        stop = min(start + block, n)
        logits, frozen = forward(model, ids, list(range(n)), None)
        nfe += 1
        row = logits[start - shift].astype(np.float64)
        row[mask] = -np.inf
        ids[start] = int(row.argmax())
        live = list(range(start, n if cache == "prefix" else stop))
        while any(ids[p] == mask for p in range(start, stop)):
            logits, _ = forward(model, ids, live, frozen)
            nfe += 1
            commit_confident(ids, start, stop, logits, live, shift, mask, tau)
    return ids[len(prompt) :], nfe


def commit_confident(
    ids: list[int], start: int, stop: int, logits: Any, live: list[int], shift: int, mask: int, tau: float
) -> list[int]:
    """Write every prediction of the block that is sure enough, or the surest; return the positions."""
    best: dict[int, tuple[float, int]] = {}
    for p in range(start, stop):
        if ids[p] == mask:
            row = logits[live.index(p - shift)].astype(np.float64)
            row[mask] = -np.inf
            p_row = np.exp(row - row.max())
            p_row /= p_row.sum()
            best[p] = (float(p_row.max()), int(p_row.argmax()))
    chosen = [p for p, (sure, _) in best.items() if sure >= tau]
    chosen = chosen or [max(best, key=lambda p: (best[p][0], -p))]
    for p in chosen:
        ids[p] = best[p][1]
    return chosen


def reference_dkv_confidence(
    model: ReferenceModel, prompt: list[int], length: int, block: int, refresh: int, tau: float
) -> tuple[list[int], int, int]:
    """Confidence decoding with dKV-Cache; return the response, the forwards, and how many rows they had.

    `age[p]` counts the forwards that have seen the token at p since it was committed. A token of age 0 must
    be recomputed; from age 1 on its keys, left by that forward, are reused. A mask is always recomputed.
    """
    mask, shift = model.mask_id, model.shift
    ids, nfe, n_rows = list(prompt) + [mask] * length, 0, 0
    n = len(ids)
    age = {p: 0 for p in range(len(prompt))}
    keys: Keys | None = None
    for start in range(len(prompt), n, block):
        stop = min(start + block, n)
        step = 0
        while any(ids[p] == mask for p in range(start, stop)):
            if keys is None or step < 2 or step % refresh == 0:
                live = list(range(n))
            else:
                live = []
                for p in range(n):
                    is_read = start <= p + shift < stop and ids[p + shift] == mask
                    if ids[p] == mask or age[p] == 0 or is_read:
                        live.append(p)
            logits, keys = forward(model, ids, live, keys)
            nfe, n_rows, step = nfe + 1, n_rows + len(live), step + 1
            for p in age:
                age[p] += 1
            for p in commit_confident(ids, start, stop, logits, live, shift, mask, tau):
                age[p] = 0
    return ids[len(prompt) :], nfe, n_rows
