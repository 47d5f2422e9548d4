"""Speed as the paper measures it: one request at a time, alone on the device; each forward's share of it.

Result lines of whole batches say how accurate a decoder is and how many forwards it needs. What a forward
costs, and tokens per second, is told from traces of single requests, normal and lookahead forwards apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ripple.decoders import Default
from ripple.engine.engine import Engine
from ripple.engine.prompts import Prompt
from ripple.engine.result import Result
from ripple.eval.sweep import Want
from ripple.files import Line
from ripple.options import BLOCK, Options

KINDS = ("normal", "lookahead")


def time_setting(engine: Engine, want: Want, prompts: Sequence[Prompt]) -> Line:
    """Decode the prompts one by one and return their costs as a line."""
    plain = Options(Default(k=BLOCK), want.length, cache=want.cache)
    own = replace(plain, decoder=want.setting, trace=True)
    for prompt in _warm_up(engine, prompts):
        engine.generate([prompt], plain)
        if engine.model.device.type == "cuda":
            engine.generate([prompt], own)  # the shapes of this decoder too
    results = [engine.generate([prompt], own)[0] for prompt in prompts]
    n = len(results)
    seconds, n_tokens = sum(r.seconds for r in results), sum(len(r.new_tokens) for r in results)
    return {
        "decoder": want.setting.name, "setting": want.setting.describe(), "length": want.length, "n": n,
        "nfe": sum(r.nfe for r in results) / n, "new_tokens": n_tokens / n, "seconds": seconds / n,
        "tps": n_tokens / seconds, "forwards": forwards(results),
    }  # fmt: skip


def _warm_up(engine: Engine, prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return what to decode first: a GPU runs a shape when it is new and captures it the next time."""
    return [*prompts, *prompts] if engine.model.device.type == "cuda" else [prompts[0]]


def forwards(results: Sequence[Result]) -> dict[str, dict[str, float]]:
    """Return per kind of forward: how many a request takes, and milliseconds each."""
    told = [event.data for r in results for event in r.trace or [] if event.kind == "forward"]
    kinds = {}
    for kind in KINDS:
        seconds = [data["seconds"] for data in told if data["kind"] == kind]
        mean_ms = 1000 * sum(seconds) / len(seconds) if seconds else 0.0
        kinds[kind] = {"count": len(seconds) / len(results), "ms": mean_ms}
    return kinds
