"""How far packed lookahead strays from exact lookahead: the KL between their predictions.

In a packed forward the shared context does not react to a branch's token. Each lookahead of a decoding is
evaluated both ways on the same canvas, and KL(exact || packed) is taken per row over the vocabulary.
With every context row frozen (dual cache) the two are equal.

Run: `ripple bench packing`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from ripple.caches import CACHES, cache
from ripple.decoders import RPS
from ripple.engine.engine import Engine
from ripple.engine.load import load
from ripple.engine.plan import Reading
from ripple.engine.prompts import Prompt
from ripple.engine.result import Settings
from ripple.engine.session import Session
from ripple.engine.stats import log_probs
from ripple.models.random import write_random_checkpoint


def measure(folder: Path | None = None, length: int = 64) -> dict[str, Any]:
    """Decode one prompt with RPS under every cache and report the KL of its lookaheads."""
    if folder is None:
        with tempfile.TemporaryDirectory() as scratch:
            return measure(write_random_checkpoint(Path(scratch), vocab_size=512), length)
    engine = load(folder, device="cpu", dtype="float32")
    prompt = list(range(1, 33))
    rows = {name: packing_kl(engine, prompt, Settings(RPS(), length, cache=cache(name))) for name in CACHES}
    return {"bench": "packing", "length": length, "caches": rows}


def packing_kl(engine: Engine, prompt: Prompt, settings: Settings) -> dict[str, Any]:
    """Decode the prompt and return the KL in nats of its lookahead rows: mean, largest, and how many."""
    session = engine.submit(prompt, settings)
    kls: list[torch.Tensor] = []
    engine.tick()
    while session.finish is None:
        if session.ask is not None and session.ask.branches and not session.opens:
            kls.append(_kl_rows(engine, session))
        engine.tick()
    rows = torch.cat(kls) if kls else torch.zeros(0)
    return {
        "lookaheads": session.nfe_lookahead,
        "rows": len(rows),
        "kl_mean": float(rows.mean()) if len(rows) else None,
        "kl_max": float(rows.max()) if len(rows) else None,
    }


@torch.inference_mode()
def _kl_rows(engine: Engine, session: Session) -> torch.Tensor:
    """Evaluate the branches of the pending ask in both ways."""
    exact, packed = (_branch_log_probs(engine, session.lay_out(packed=packed)) for packed in (False, True))
    p = exact.exp()
    return (p * (exact - packed)).sum(dim=-1).clamp_min(0)


def _branch_log_probs(engine: Engine, reading: Reading) -> torch.Tensor:
    hidden = engine.hidden_states([reading])
    rows = torch.cat([hidden[draft.rows] for draft in reading.branches])
    return log_probs(engine.model.logits(rows), engine.model.config.mask_id)
