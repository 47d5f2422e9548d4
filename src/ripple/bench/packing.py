"""How far packed and thin lookahead stray from exact lookahead: the KL between their predictions.

In a packed forward the shared context does not react to a branch's token; in a thin one the committed tokens
of the window do not either. Each lookahead of a decoding is evaluated in all ways on the same canvas, and
KL(exact || packed) is taken per row over the vocabulary. With every context row frozen (dual cache) packed is
exact. A model with a tokenizer is given word problems, which the embedded ones can solve.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ripple.bench.folder import check_folder
from ripple.bench.serve import prompts_of
from ripple.caches import CACHES
from ripple.engine.engine import Engine
from ripple.engine.layout import AskLayout
from ripple.engine.load import load
from ripple.engine.prompts import Prompt
from ripple.engine.stats import log_probs
from ripple.fields import param
from ripple.measurement import Measurement
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.options import Options

PROMPT = list(range(1, 33))


@dataclass(frozen=True)
class Packing(Measurement):
    """Measure how far packed and thin lookahead stray from exact lookahead under every cache (KL, nats)."""

    name = "packing"

    folder: Path | None = param(None, "a checkpoint; none is a small random one")
    decoder: str = param("rps", "whose lookaheads are measured")
    length: int = param(64, "response positions", within="[1, inf)")
    prompts: int = param(8, "problems, of a model with a tokenizer", within="[1, inf)")
    end_fill: bool = param(False, "end with the answer, as glide does")

    def run(self) -> dict[str, Any]:
        """Decode some prompts under every cache and report the KL of their lookaheads."""
        if self.folder is not None:
            return self._measured(check_folder(self.folder))
        with tempfile.TemporaryDirectory() as scratch:
            return self._measured(write_random_checkpoint(Path(scratch), vocab_size=512))

    def _measured(self, folder: Path) -> dict[str, Any]:
        engine = load(folder, device="cpu", dtype="float32")
        prompts: list[Prompt] = [PROMPT] if engine.tokenizer is None else [*prompts_of(self.prompts)]
        rows = {
            name: {how: self._kl(engine, prompts, name, how) for how in ("packed", "thin")}
            for name, policy in CACHES.items()
            if not policy.needs_blocks
        }
        model = None if self.folder is None else folder.name
        facts = {"model": model, "decoder": self.decoder, "length": self.length, "prompts": len(prompts)}
        return {"bench": self.name, **facts, "end_fill": self.end_fill, "caches": rows}

    def _kl(self, engine: Engine, prompts: Iterable[Prompt], cache: str, lookahead: str) -> dict[str, Any]:
        options = Options(self.decoder, self.length, cache=cache, lookahead=lookahead, end_fill=self.end_fill)
        return packing_kl(engine, prompts, options)


def packing_kl(engine: Engine, prompts: Iterable[Prompt], options: Options) -> dict[str, Any]:
    """Decode the prompts and return the KL in nats of their lookahead rows: mean, largest, and how many."""
    kls: list[torch.Tensor] = []
    n_lookaheads = 0
    for prompt in prompts:
        request = engine.submit(prompt, options)
        for _ in engine.steps([request]):
            if request.ask is not None and request.ask.branches and not request.is_refresh:
                layouts = (request.build_layout(how) for how in ("batched", options.lookahead))
                kls.append(_kl_rows(engine, *layouts))
        n_lookaheads += request.nfe_lookahead
    rows = torch.cat(kls) if kls else torch.zeros(0)
    return {
        "lookaheads": n_lookaheads,
        "rows": len(rows),
        "kl_mean": float(rows.mean()) if len(rows) else None,
        "kl_max": float(rows.max()) if len(rows) else None,
    }


@torch.inference_mode()
def _kl_rows(engine: Engine, exact_layout: AskLayout, packed_layout: AskLayout) -> torch.Tensor:
    """Evaluate the branches of one ask in both ways."""
    exact, packed = (_branch_log_probs(engine, layout) for layout in (exact_layout, packed_layout))
    return (exact.exp() * (exact - packed)).sum(dim=-1).clamp_min(0)


def _branch_log_probs(engine: Engine, layout: AskLayout) -> torch.Tensor:
    hidden = engine.runner.hidden_states([layout])
    rows = torch.cat([hidden[span.rows] for span in layout.branches])
    return log_probs(engine.model.logits(rows), engine.model.config.mask_id)
