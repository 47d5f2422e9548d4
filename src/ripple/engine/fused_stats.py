"""The statistics pass on a GPU: two small kernels read the logits once, and a little of them again.

The first sums up chunks of a row (maximum, partition sum, entropy sum) and keeps the maximum of every SUB
tokens. The k most probable tokens of a row must lie in the k subs with the largest maxima, so the second
kernel reads only those again. Equal to `reduce_rows(log_probs(...))` in stats.py, and tested so.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ripple.engine.stats import NEVER

Tensor = torch.Tensor
SUB = 128  # tokens that share one kept maximum
SUBS_AT_ONCE = 32  # subs per program of the first pass: 4,096 tokens


@triton.jit
def _chunk(logits, sums, maxima, vocab, mask_id, n_chunks, never, SUBS: tl.constexpr, SUB: tl.constexpr):
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    sub = chunk * SUBS + tl.arange(0, SUBS)
    token = sub[:, None] * SUB + tl.arange(0, SUB)[None, :]
    inside = token < vocab
    x = tl.load(logits + row * vocab + token, mask=inside, other=float("-inf")).to(tl.float32)
    x = tl.where(token == mask_id, never, x)
    sub_max = tl.max(x, 1)
    tl.store(maxima + row * n_chunks * SUBS + sub, sub_max)
    top = tl.max(sub_max, 0)
    above = tl.where(inside, x - top, 0.0)
    share = tl.where(inside, tl.exp(above), 0.0)
    at = sums + (row * n_chunks + chunk) * 3
    tl.store(at, top)
    tl.store(at + 1, tl.sum(tl.sum(share, 1), 0))
    tl.store(at + 2, tl.sum(tl.sum(share * above, 1), 0))


@triton.jit
def _finish(
    logits, sums, maxima, out, lse_out, vocab, mask_id, n_chunks, n_subs, k, never,
    CHUNKS: tl.constexpr, SUBS: tl.constexpr, SUB: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.arange(0, CHUNKS)
    real = chunk < n_chunks
    at = sums + (row * n_chunks + chunk) * 3
    top = tl.load(at, mask=real, other=float("-inf"))
    total = tl.load(at + 1, mask=real, other=0.0)
    weighted = tl.load(at + 2, mask=real, other=0.0)
    highest = tl.max(top, 0)
    gap = tl.where(real, top - highest, 0.0)
    fade = tl.where(real, tl.exp(gap), 0.0)
    partition = tl.sum(total * fade, 0)
    log_partition = tl.log(partition)
    entropy = log_partition - tl.sum(fade * (weighted + gap * total), 0) / partition
    lse = highest + log_partition

    sub = tl.arange(0, SUBS)
    best = tl.load(maxima + row * n_subs + sub, mask=sub < n_subs, other=float("-inf"))
    slot = tl.arange(0, K)
    chosen = tl.zeros([K], tl.int32)
    for i in range(k):
        value = tl.max(best, 0)
        which = tl.min(tl.where(best == value, sub, SUBS), 0)
        chosen = tl.where(slot == i, which, chosen)
        best = tl.where(sub == which, float("-inf"), best)
    token = chosen[:, None] * SUB + tl.arange(0, SUB)[None, :]
    wanted = (slot < k)[:, None] & (token < vocab)
    x = tl.load(logits + row * vocab + token, mask=wanted, other=float("-inf")).to(tl.float32)
    x = tl.where((token == mask_id) & wanted, never, x)
    here = out + row * (2 * k + 4)
    for i in range(k):
        value = tl.max(tl.max(x, 1), 0)
        which = tl.min(tl.min(tl.where((x == value) & wanted, token, vocab), 1), 0)
        x = tl.where(token == which, float("-inf"), x)
        wanted = wanted & (token != which)
        p = tl.exp(value - lse)
        tl.store(here + 4 + i, which.to(tl.float32))
        tl.store(here + 4 + k + i, p)
        if i == 0:
            tl.store(here, which.to(tl.float32))
            tl.store(here + 1, p)
    tl.store(here + 2, entropy)
    tl.store(here + 3, tl.where(tl.abs(entropy) < float("inf"), 1.0, 0.0))  # a NaN compares as false
    tl.store(lse_out + row, lse)


def reduce_logits(logits: Tensor, k: int, mask_id: int) -> tuple[Tensor, Tensor]:
    """Reduce logits [n, V] to what `reduce_rows` returns, [n, 2k + 4], and the log partition sum [n]."""
    n, vocab = logits.shape
    n_chunks = triton.cdiv(vocab, SUB * SUBS_AT_ONCE)
    n_subs = n_chunks * SUBS_AT_ONCE
    sums = torch.empty(n, n_chunks, 3, device=logits.device)
    maxima = torch.empty(n, n_subs, device=logits.device)
    packed = torch.empty(n, 2 * k + 4, device=logits.device)
    lse = torch.empty(n, device=logits.device)
    _chunk[(n, n_chunks)](
        logits, sums, maxima, vocab, mask_id, n_chunks, NEVER, SUBS=SUBS_AT_ONCE, SUB=SUB, num_warps=4
    )
    _finish[(n,)](
        logits, sums, maxima, packed, lse, vocab, mask_id, n_chunks, n_subs, k, NEVER,
        CHUNKS=triton.next_power_of_2(n_chunks), SUBS=triton.next_power_of_2(n_subs), SUB=SUB,
        K=triton.next_power_of_2(k), num_warps=4,
    )  # fmt: skip
    return packed, lse
