"""One statistics pass over all rows of a tick: hidden states in, queued numbers out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ripple.canvas import Ints
from ripple.engine.kl_history import KLHistory
from ripple.engine.readback import QueuedStats
from ripple.engine.stats import Sampling, log_probs, reduce_rows
from ripple.engine.work import Work
from ripple.models.base import Model

LOGITS_AT_ONCE = 1 << 27  # vocabulary-sized numbers per statistics pass: 0.5 GiB in fp32


@torch.inference_mode()
def reduce_tick(
    model: Model, hidden: torch.Tensor, work: Sequence[Work], history: KLHistory | None = None
) -> QueuedStats:
    """Queue the projection of the rows that are read and the statistics over them."""
    config = model.config
    k = min(max(one.top for one in work), config.vocab_size - 1)
    probes, owners = _probe_index(work)
    on_device = torch.from_numpy(probes).to(model.device, non_blocking=True)
    sampling = _sampling(work, len(hidden), model.device)
    wants_kl = any(one.kl is not None for one in work)
    is_fused = model.has_static_shapes and sampling is None and not wants_kl
    step = len(hidden) if wants_kl else max(1, LOGITS_AT_ONCE // config.vocab_size)
    packed: list[torch.Tensor] = []
    kl, n_kl = None, dict[int, int]()
    probed = torch.zeros(probes.shape[1], device=model.device)
    for start in range(0, len(hidden), max(1, step)):
        logits = model.logits(hidden[start : start + step])
        if is_fused:  # nobody needs the whole distribution: it never exists
            numbers, log_total = _fused(logits, k, config.mask_id)
            logp = logits
        else:
            logp, log_total = log_probs(logits, config.mask_id), None
            numbers = reduce_rows(logp, k, sampling.part(start, start + step) if sampling else None)
        packed.append(numbers.reshape(-1))
        if probes.shape[1]:
            probed = _probe(logp, log_total, on_device, start, probed)
        if wants_kl:
            kl, n_kl = _kl_of(work, logp, history)
    parts = [*packed, *([probed] if probes.shape[1] else []), *([] if kl is None else [kl])]
    flat = parts[0] if len(parts) == 1 else torch.cat(parts)
    return QueuedStats(flat, len(hidden), k, owners, n_kl)


def _sampling(work: Sequence[Work], n_rows: int, device: torch.device) -> Sampling | None:
    """Return each row's temperature and uniform number; None when every request is greedy."""
    if all(one.uniform is None for one in work):
        return None
    temperature, uniform = np.zeros(n_rows), np.zeros(n_rows)
    for one in work:
        if one.uniform is not None:
            for span in one.layout.spans:
                temperature[span.rows] = one.temperature
                uniform[span.rows] = one.uniform[span.pos - one.prompt_len]
    return Sampling(torch.from_numpy(temperature).float().to(device), torch.from_numpy(uniform).to(device))


def _probe(
    logp: torch.Tensor, log_total: torch.Tensor | None, probes: torch.Tensor, start: int, known: torch.Tensor
) -> torch.Tensor:
    """Look up the probes whose rows lie in this part; the others keep what is known."""
    local, tokens = probes[0] - start, probes[1]
    is_here = (local >= 0) & (local < len(logp))
    local = local.clamp(0, len(logp) - 1)
    value = logp[local, tokens].float()
    return torch.where(is_here, torch.exp(value if log_total is None else value - log_total[local]), known)


def _fused(logits: torch.Tensor, k: int, mask_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    from ripple.engine.fused_stats import reduce_logits  # needs Triton, which only GPU machines have

    return reduce_logits(logits, k, mask_id)


def _kl_of(
    work: Sequence[Work], logp: torch.Tensor, history: KLHistory | None
) -> tuple[torch.Tensor, dict[int, int]]:
    """Compare the rows of requests that want KL with their previous looks; say how many are whose."""
    assert history is not None, "requests that want KL need a history"
    comparisons, n_kl = [], {}
    for number, one in enumerate(work):
        if one.kl is not None:
            comparisons.append((one.kl, one.layout, one.ask.adopted, one.prompt_len))
            n_kl[number] = sum(len(span.pos) for span in one.layout.looks)
    return history.compare(comparisons, logp), n_kl


def _probe_index(work: Sequence[Work]) -> tuple[Ints, dict[int, slice]]:
    """Return row and token [2, n] of every probability that is asked for by name, and whose they are."""
    rows: list[int] = []
    tokens: list[int] = []
    owners: dict[int, slice] = {}
    for number, one in enumerate(work):
        start, layout = len(rows), one.layout
        canvases = [layout.base, *layout.branches]
        row_of: dict[tuple[int, int], int] = {}  # RPS probes one position for many tokens
        for canvas, pos, token in one.ask.probes:
            if (canvas, pos) not in row_of:
                offset = int(np.searchsorted(canvases[canvas].pos, pos))
                row_of[canvas, pos] = canvases[canvas].rows.start + offset
            rows.append(row_of[canvas, pos])
            tokens.append(token)
        if layout.shadow is not None:
            rows.extend(range(layout.shadow.rows.start, layout.shadow.rows.stop))
            tokens.extend(one.shadow_tokens.tolist())
        if len(rows) > start:
            owners[number] = slice(start, len(rows))
    return np.array([rows, tokens], dtype=np.int64).reshape(2, -1), owners
