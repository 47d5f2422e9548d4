"""How likely a continuation is: the Monte Carlo estimate of a masked diffusion model's bound.

A masked model gives no product of next-token probabilities. With l of the T tokens hidden, l drawn evenly
from 1 to T and the places at random,

    log p(target | prompt) >= E[ T / l * sum over hidden places of log p(token | everything visible) ],

which is estimated by n draws. As in LLaDA's script the n values of l are spread evenly over 1 ... T from a
random start instead of being drawn one by one; here all n belong to one spread, there as many as a batch.

A model that attends block by block never sees a mask before the open block. So each block of the target is
estimated by n draws of its own, behind the target's own tokens, and the blocks' values add up. Where the
context is causal, next-token probabilities are defined, and one forward gives the exact value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from ripple.canvas import Ints, Rows
from ripple.engine.engine import Engine
from ripple.engine.score import next_token_log_probs, token_log_probs
from ripple.errors import RippleError
from ripple.models.base import Model, ModelConfig


def hidden_counts(n_tokens: int, n_draws: int, rng: np.random.Generator) -> Ints:
    """Return how many tokens each draw hides: evenly spaced over 1 ... T, from a random start."""
    start = int(rng.integers(1, n_tokens + 1))
    spread = np.rint(start + np.arange(n_draws) * (n_tokens / n_draws)).astype(np.int64)
    counts: Ints = (spread - 1) % n_tokens + 1
    return counts


def draw_masks(n_tokens: int, n_draws: int, rng: np.random.Generator) -> Rows:
    """Return [n, T]: which tokens each draw hides."""
    counts = hidden_counts(n_tokens, n_draws, rng)
    masks: Rows = rng.permuted(np.arange(n_tokens) < counts[:, None], axis=1)
    return masks


def log_likelihood(
    engine: Engine, prompt: Sequence[int], target: Sequence[int], n_draws: int, seed: int, batch: int
) -> float:
    """Estimate log p(target | prompt) in nats, or compute it where the model's context is causal.

    The draws depend on the seed and the tokens alone, so the value does not depend on the order of requests
    or on who computes it. Draws that hide the same places are evaluated once.
    """
    check_fits(engine, len(prompt), len(target))
    if not target:
        return 0.0
    model, ids = engine.model, np.array([*prompt, *target], dtype=np.int64)
    if model.config.causal_context:
        return float(next_token_log_probs(model, ids, len(prompt)).sum(dtype=np.float64))
    digest = hashlib.sha256(ids.tobytes() + bytes(f"{len(prompt)}/{seed}", "ascii")).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    parts = _parts(model.config, len(prompt), len(ids))
    return sum(_estimate(model, ids[:stop], start, n_draws, rng, batch) for start, stop in parts)


def _parts(config: ModelConfig, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield from where to where the target is hidden at a time: a block, or all of it."""
    block = config.attention_block or stop
    while start < stop:
        end = min((start // block + 1) * block, stop)
        yield start, end
        start = end


def _estimate(
    model: Model, ids: Ints, start: int, n_draws: int, rng: np.random.Generator, batch: int
) -> float:
    """Estimate the log-probability of what begins at `start`, given what lies before."""
    n = len(ids) - start
    masks, times = np.unique(draw_masks(n, n_draws, rng), axis=0, return_counts=True)
    hide = np.concatenate([np.zeros((len(masks), start), dtype=bool), masks], axis=1)
    total = 0.0
    for log_p, n_times in zip(token_log_probs(model, ids, hide, batch), times, strict=True):
        total += n_times * n / len(log_p) * float(log_p.sum(dtype=np.float64))
    return total / n_draws


def check_fits(engine: Engine, n_prompt: int, n_target: int) -> None:
    """Refuse what the model has no positions for, and a prompt without a token."""
    if not n_prompt:
        raise RippleError("A likelihood needs at least one token before what is judged.")
    most = engine.model.config.max_positions
    if n_prompt + n_target > most:
        raise RippleError(
            f"Prompt of {n_prompt} tokens and continuation of {n_target} exceed the model's {most} positions."
        )
