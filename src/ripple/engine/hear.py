"""From hidden states to answers: one statistics pass over all rows of a tick, one copy to the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ripple.canvas import Floats, Ints
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

    def is_finite(self, reading: Reading) -> bool:
        """Say whether every row of a reading was free of NaN and infinity."""
        return all(bool(self.stats.finite[draft.rows].all()) for draft in reading.drafts)

    def answer(self, session: Session, reading: Reading) -> Answer:
        """Cut one request's answer out of the tick's arrays."""
        assert session.ask is not None
        kl = self.kl.get(session.number)
        drafts = [reading.base, *reading.branches, *([reading.ahead] if reading.ahead else [])]
        looks, at = [], 0
        for draft in drafts:
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


@torch.inference_mode()
def reduce_tick(
    model: Transformer, hidden: torch.Tensor, asking: list[Session], readings: list[Reading],
    sampling: Sampling | None,
) -> Heard:  # fmt: skip
    """Project the rows that are read, reduce them, and bring everything to the host at once."""
    config, device = model.config, model.device
    k = min(max(session.wants.top for session in asking), config.vocab_size - 1)
    rows, tokens, owners = _probe_index(asking, readings)
    rows_there, tokens_there = torch.from_numpy(rows).to(device), torch.from_numpy(tokens).to(device)
    probed = torch.zeros(len(rows), device=device)
    wants_kl = any(session.memory is not None for session in asking)
    step = len(hidden) if wants_kl else max(1, LOGITS_AT_ONCE // config.vocab_size)
    packed, kls = [], dict[int, torch.Tensor]()
    for start in range(0, len(hidden), step):
        logp = log_probs(model.logits(hidden[start : start + step]), config.mask_id)
        packed.append(reduce_rows(logp, k, sampling.part(start, start + step) if sampling else None))
        if len(rows):
            here = (rows_there >= start) & (rows_there < start + step)
            local = (rows_there - start).clamp(0, len(logp) - 1)
            probed = torch.where(here, logp[local, tokens_there].exp(), probed)
        if wants_kl:
            kls = _kl_of(asking, readings, logp)

    flat = torch.cat([part.reshape(-1) for part in packed] + [probed, *kls.values()]).cpu().numpy()
    n = len(hidden) * (2 * k + 4)
    stats = unpack(flat[:n].reshape(len(hidden), -1), k)
    probes = {number: flat[n + part.start : n + part.stop] for number, part in owners.items()}
    kl, at = {}, n + len(rows)
    for number, values in kls.items():
        kl[number] = flat[at : at + len(values)]
        at += len(values)
    return Heard(stats, probes, kl)


def _kl_of(asking: list[Session], readings: list[Reading], logp: torch.Tensor) -> dict[int, torch.Tensor]:
    """Compare each remembering request's rows with its previous look."""
    return {
        session.number: torch.cat(session.memory.compare(reading, session.ask.follows, logp))
        for session, reading in zip(asking, readings, strict=True)
        if session.memory is not None and session.ask is not None
    }


def _probe_index(asking: list[Session], readings: list[Reading]) -> tuple[Ints, Ints, dict[int, slice]]:
    """Return row and token of every probability that is asked for by name, and whose they are."""
    rows: list[int] = []
    tokens: list[int] = []
    owners: dict[int, slice] = {}
    for session, reading in zip(asking, readings, strict=True):
        assert session.ask is not None
        start = len(rows)
        drafts = [reading.base, *reading.branches]
        for draft, pos, token in session.ask.probes:
            rows.append(drafts[draft].rows.start + int(np.searchsorted(drafts[draft].pos, pos)))
            tokens.append(token)
        if reading.shadow is not None:
            rows.extend(range(reading.shadow.rows.start, reading.shadow.rows.stop))
            tokens.extend(session.canvas.ids[reading.shadow.pos].tolist())
        if len(rows) > start:
            owners[session.number] = slice(start, len(rows))
    return np.array(rows, dtype=np.int64), np.array(tokens, dtype=np.int64), owners
