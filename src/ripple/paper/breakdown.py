"""Speed as the paper measures it: one request at a time, alone on the device; each forward's share of it.

Result lines of whole batches say how accurate a decoder is and how many forwards it needs. What a forward
costs, and tokens per second, is told from traces of single requests, normal and lookahead forwards apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ripple.analysis.lines import Line
from ripple.caches import cache
from ripple.decoders import Default
from ripple.engine.engine import Engine
from ripple.engine.prompts import Prompt
from ripple.engine.result import Result
from ripple.paper.experiments import Want

KINDS = ("normal", "lookahead")


def time_setting(engine: Engine, want: Want, prompts: Sequence[Prompt]) -> Line:
    """Decode the prompts one by one and return their costs as a line."""
    how: dict[str, Any] = {"length": want.length, "block": 32, "cache": cache(want.cache)}
    for prompt in _warm_up(engine, prompts):
        engine.generate(prompt, decoder=Default(k=32), **how)  # plain forwards
        if engine.model.device.type == "cuda":
            engine.generate(prompt, decoder=want.setting, **how)  # and the shapes of this decoder
    results = [engine.generate(prompt, decoder=want.setting, trace=True, **how) for prompt in prompts]
    n = len(results)
    seconds, n_tokens = sum(r.seconds for r in results), sum(len(r.new_tokens) for r in results)
    return {
        "method": want.setting.name, "setting": want.setting.describe(), "length": want.length, "n": n,
        "nfe": sum(r.nfe for r in results) / n, "new_tokens": n_tokens / n, "seconds": seconds / n,
        "tps": n_tokens / seconds, "forwards": forwards(results),
    }  # fmt: skip


def _warm_up(engine: Engine, prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return what to decode first: a GPU runs a shape when it is new and captures it the next time."""
    return [*prompts, *prompts] if engine.model.device.type == "cuda" else [prompts[0]]


def forwards(results: Sequence[Result]) -> dict[str, dict[str, float]]:
    """Return per kind of forward: how many a request takes, and milliseconds each."""
    told = [event.data for r in results for event in r.trace or [] if event.kind == "forward"]
    found = {}
    for kind in KINDS:
        seconds = [data["seconds"] for data in told if data["kind"] == kind]
        mean_ms = 1000 * sum(seconds) / len(seconds) if seconds else 0.0
        found[kind] = {"count": len(seconds) / len(results), "ms": mean_ms}
    return found
