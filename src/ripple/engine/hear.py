"""From hidden states to answers: one statistics pass over all rows of a tick, one copy to the host."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from ripple.canvas import Floats, Ints
from ripple.engine.memory import LookBook
from ripple.engine.plan import Draft, Reading
from ripple.engine.session import Session
from ripple.engine.stats import RowStats, Sampling, log_probs, reduce_rows, unpack
from ripple.look import Answer, Look
from ripple.models.transformer import Transformer

LOGITS_AT_ONCE = 1 << 27  # vocabulary-sized numbers per statistics pass: 0.5 GiB in fp32
NOTHING: Floats = np.zeros(0, dtype=np.float32)


@dataclass(slots=True)
class Heard:
    """All numbers of one tick on the host; answers are views of them."""

    stats: RowStats
    probes: dict[int, Floats]  # by request number
    kl: dict[int, Floats]  # by request number: base, branches, ahead, one after another
    all_finite: bool | None = None  # not looked at yet

    def is_finite(self, reading: Reading) -> bool:
        """Say whether every row of a reading was free of NaN and infinity."""
        if self.all_finite is None:
            self.all_finite = bool(self.stats.finite.all())  # asked once per tick, nearly always true
        return self.all_finite or all(bool(self.stats.finite[draft.rows].all()) for draft in reading.drafts)

    def answer(self, session: Session, reading: Reading) -> Answer:
        """Cut one request's answer out of the tick's arrays."""
        assert session.ask is not None
        kl = self.kl.get(session.number)
        looks, at = [], 0
        for draft in reading.looks:
            looks.append(self._look(draft, None if kl is None else kl[at : at + len(draft.pos)]))
            at += len(draft.pos)
        probes, n = self.probes.get(session.number, NOTHING), len(session.ask.probes)
        n_branches = len(reading.branches)
        return Answer(
            base=looks[0],
            branches=tuple(looks[1 : 1 + n_branches]),
            probes=probes[:n],
            shadow=probes[n:],
            ahead=looks[1 + n_branches] if reading.ahead else None,
        )

    def _look(self, draft: Draft, kl: Floats | None) -> Look:
        s, at = self.stats, draft.rows
        return Look(draft.pos, s.token[at], s.p[at], s.entropy[at], s.top_token[at], s.top_p[at], kl)


@dataclass(slots=True)
class Queued:
    """A tick's numbers, still on the device or on their way; a `Landing` waits for them."""

    flat: torch.Tensor  # n_rows * (2k + 4) statistics, then the probes, then the KLs
    n_rows: int
    k: int
    owners: dict[int, slice]  # request number -> its probes
    n_kl: dict[int, int]  # request number -> how many KLs

    def cut(self, flat: Floats) -> Heard:
        """Give every number of the copy its place."""
        n = self.n_rows * (2 * self.k + 4)
        stats = unpack(flat[:n].reshape(self.n_rows, -1), self.k)
        probes = {number: flat[n + part.start : n + part.stop] for number, part in self.owners.items()}
        kl, at = {}, len(flat) - sum(self.n_kl.values())
        for number, length in self.n_kl.items():
            kl[number] = flat[at : at + length]
            at += length
        return Heard(stats, probes, kl)


class Landing:
    """Page-locked memory that a tick's numbers are copied to, and the tick's only wait. Both are reused."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory = torch.empty(0)
        self._arrival = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def hear(self, queued: Queued, meanwhile: Iterator[None]) -> Heard:
        """Bring everything to the host in one copy; `meanwhile` is what to do until it is there."""
        if self._arrival is None:
            return queued.cut(queued.flat.cpu().numpy())
        n = queued.flat.numel()
        if n > len(self._memory):
            self._memory = torch.empty(2 * n, pin_memory=True)
        here = self._memory[:n]
        here.copy_(queued.flat, non_blocking=True)
        self._arrival.record(torch.cuda.current_stream(self._device))
        if threading.active_count() > 1:  # others may want the interpreter, so it is let go
            self._arrival.synchronize()
        while not self._arrival.query():  # type: ignore[no-untyped-call]
            next(meanwhile)
        return queued.cut(here.numpy().copy())  # decoders may keep what they hear


@torch.inference_mode()
def reduce_tick(
    model: Transformer, hidden: torch.Tensor, asking: list[Session], readings: list[Reading],
    sampling: Sampling | None, looks: LookBook | None = None,
) -> Queued:  # fmt: skip
    """Queue the projection of the rows that are read and the statistics over them."""
    config = model.config
    k = min(max(session.wants.top for session in asking), config.vocab_size - 1)
    probes, owners = _probe_index(asking, readings)
    probes_there = torch.from_numpy(probes).to(model.device, non_blocking=True)
    wants_kl = any(session.memory is not None for session in asking)
    fused = model.has_static_shapes and sampling is None and not wants_kl
    step = len(hidden) if wants_kl else max(1, LOGITS_AT_ONCE // config.vocab_size)
    packed: list[torch.Tensor] = []
    kl, n_kl = None, dict[int, int]()
    probed = torch.zeros(probes.shape[1], device=model.device)
    for start in range(0, len(hidden), step):
        logits = model.logits(hidden[start : start + step])
        if fused:  # nobody needs the whole distribution: it never exists
            numbers, log_total = _fused(logits, k, config.mask_id)
            logp = logits
        else:
            logp, log_total = log_probs(logits, config.mask_id), None
            numbers = reduce_rows(logp, k, sampling.part(start, start + step) if sampling else None)
        packed.append(numbers.reshape(-1))
        if probes.shape[1]:
            probed = _probe(logp, log_total, probes_there, start, probed)
        if wants_kl:
            kl, n_kl = _kl_of(asking, readings, logp, looks)
    parts = [*packed, *([probed] if probes.shape[1] else []), *([] if kl is None else [kl])]
    flat = parts[0] if len(parts) == 1 else torch.cat(parts)
    return Queued(flat, len(hidden), k, owners, n_kl)


def _probe(
    logp: torch.Tensor, log_total: torch.Tensor | None, probes: torch.Tensor, start: int, found: torch.Tensor
) -> torch.Tensor:
    """Look up the probes whose rows lie in this part; the others keep what was found before."""
    local, tokens = probes[0] - start, probes[1]
    here = (local >= 0) & (local < len(logp))
    local = local.clamp(0, len(logp) - 1)
    value = logp[local, tokens].float()
    return torch.where(here, torch.exp(value if log_total is None else value - log_total[local]), found)


def _fused(logits: torch.Tensor, k: int, mask_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    from ripple.engine.fused_stats import reduce_logits  # needs Triton, which only GPU machines have

    return reduce_logits(logits, k, mask_id)


def _kl_of(
    asking: list[Session], readings: list[Reading], logp: torch.Tensor, looks: LookBook | None
) -> tuple[torch.Tensor, dict[int, int]]:
    """Compare the remembering requests' rows with their previous looks; say how many are whose."""
    assert looks is not None, "requests that want KL need a book of looks"
    mine, n_kl = [], {}
    for session, reading in zip(asking, readings, strict=True):
        if session.memory is not None and session.ask is not None:
            mine.append((session.memory, reading, session.ask.follows))
            n_kl[session.number] = sum(len(draft.pos) for draft in reading.looks)
    return looks.compare(mine, logp), n_kl


def _probe_index(asking: list[Session], readings: list[Reading]) -> tuple[Ints, dict[int, slice]]:
    """Return row and token [2, n] of every probability that is asked for by name, and whose they are."""
    rows: list[int] = []
    tokens: list[int] = []
    owners: dict[int, slice] = {}
    for session, reading in zip(asking, readings, strict=True):
        assert session.ask is not None
        start = len(rows)
        drafts = [reading.base, *reading.branches]
        row_of: dict[tuple[int, int], int] = {}  # RPS probes one position for many tokens
        for draft, pos, token in session.ask.probes:
            if (draft, pos) not in row_of:
                found = int(np.searchsorted(drafts[draft].pos, pos))
                row_of[draft, pos] = drafts[draft].rows.start + found
            rows.append(row_of[draft, pos])
            tokens.append(token)
        if reading.shadow is not None:
            rows.extend(range(reading.shadow.rows.start, reading.shadow.rows.stop))
            tokens.extend(session.canvas.ids[reading.shadow.pos].tolist())
        if len(rows) > start:
            owners[session.number] = slice(start, len(rows))
    return np.array([rows, tokens], dtype=np.int64), owners
