"""Fast paths against slow ones on whatever device is at hand; fails loudly.

The test suite proves these equalities on the CPU. This runs them where the suite does not: on a GPU, in fp32
to rounding and in bf16 to its noise. Run: `ripple bench equality --device cuda`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ripple.caches import DualCache, NoCache, PrefixCache
from ripple.decoders import Confidence, Lopa, decoder
from ripple.engine.engine import Engine
from ripple.engine.load import load
from ripple.engine.plan import Reading
from ripple.engine.result import Settings
from ripple.engine.session import Session
from ripple.errors import RippleError
from ripple.models.forward import Forward
from ripple.models.load import torch_device
from ripple.models.random import write_random_checkpoint
from ripple.models.transformer import Transformer

TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1}  # |a - b| / |b|, random weights amplify rounding
SIZES: dict[str, Any] = {
    "vocab_size": 512,
    "d_model": 256,
    "n_layers": 4,
    "n_heads": 4,
    "d_ff": 512,
    "seed": 1,
}
PROMPT = list(range(1, 40))


def measure(device: str = "auto") -> dict[str, Any]:
    """Run every check; return the relative differences, or raise naming the first that is too large."""
    gaps: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for family, kv_heads in (("llada", 4), ("dream", 2)):
            folder = write_random_checkpoint(Path(scratch) / family, family, n_kv_heads=kv_heads, **SIZES)
            for dtype in TOLERANCE:
                for name, gap in _gaps(load(folder, device=device, dtype=dtype)):
                    gaps[f"{family} {dtype}: {name}"] = gap
                    if not gap <= TOLERANCE[dtype]:
                        raise RippleError(f"{family} in {dtype}: {name} differ by {gap:.3g} of their norm.")
            _decode_alike(folder, device)
    for dtype, most in TOLERANCE.items() if torch_device(device).type == "cuda" else ():
        for name, gap in _wide_gaps(torch_device(device), getattr(torch, dtype)):
            gaps[f"{dtype}: {name}"] = gap
            if not gap <= most:
                raise RippleError(f"In {dtype}, {name} differ by {gap:.3g} of their norm.")
    return {"bench": "equality", "device": str(device), "gaps": gaps}


def _gaps(engine: Engine) -> Iterator[tuple[str, float]]:
    """Yield each pair of paths and the relative difference of their logits."""
    for cache in (NoCache(), PrefixCache(), DualCache()):
        session = _lookahead(engine, Settings(Lopa(k=4), 64, 32, cache))
        name = f"cache {cache.name}"
        plain = _logits(_plain_twin(engine), session.lay_out(packed=True))
        for run in ("first run", "second run", "replay"):  # on a GPU: eager, captured, replayed
            fast = _logits(engine, session.lay_out(packed=True))
            yield f"{name}: engine's path ({run}) and plain path", _largest(fast, plain)
        yield f"{name}: base rows of a packed and of a plain forward", _gap(fast[0], _base(engine, session))
        if cache.name == "dual":
            exact = _logits(engine, session.lay_out(packed=False))
            yield f"{name}: packed and exact branches", _largest(fast, exact)
        session.cancel()
        engine.tick()


def _wide_gaps(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[str, float]]:
    """Yield the same for kernels that only models much wider than SIZES use. For GPUs."""
    from ripple.models import hopper

    yield "a product that rotates, and product and rotation", _wide_rotation(device, dtype)
    if dtype != torch.bfloat16 or not hopper.is_hopper(device):
        return
    for heads, k_heads in ((8, 8), (14, 2), (80, 80)):  # the last fill the device: blocks are large there
        for stored in (True, False):
            what = f"attention of {heads} and {k_heads} heads on {'stored' if stored else 'fresh'} keys"
            yield f"{what} by both kernels", _attention_gap(device, heads, k_heads, stored)


def _attention_gap(device: torch.device, heads: int, k_heads: int, stored: bool) -> float:
    """Compare attention in bf16 by both of our kernels.

    That is 32 live rows and three branches on stored keys, or branches alone where all of a canvas is live.
    """
    from ripple.models import attention_hopper, attention_kernel

    w, n_keys, d = 32, 700, 128
    n_live = 32 if stored else n_keys
    n_rows = n_live + 3 * w
    whole: dict[str, Any] = {"device": device, "dtype": torch.int64}
    rows, slots = torch.zeros(2, n_rows, **whole), torch.tensor([2, 0] if stored else [0, 1], **whole)
    lo = torch.randint(n_keys - 40, (2, n_rows - n_live), **whole)
    hidden, own_len = torch.stack([lo, lo + w], dim=-1), torch.tensor([[32, 30, 1], [4, 32, 32]], **whole)
    fwd = Forward(rows, rows, n_live, w, n_keys, None, hidden, own_len, rows[0], slots=slots)
    qkv = torch.randn(2 * n_rows, (heads + 2 * k_heads) * d, device=device, dtype=torch.bfloat16)
    lengths = torch.tensor([n_keys, n_keys - 90], **whole)
    if stored:
        k, v = torch.randn(2, 3, k_heads, n_keys, d, device=device, dtype=torch.bfloat16)
    else:
        live = qkv.view(2, n_rows, -1, d)[:, :n_live, heads:].transpose(1, 2)
        k, v = live[:, :k_heads], live[:, k_heads:]
    for some in (k, v):
        some[slots[1], :, n_keys - 90 :] = torch.nan  # behind the end of the second canvas
    assert attention_hopper.fits(qkv, k)
    outs = [torch.zeros(2 * n_rows, heads * d, device=device, dtype=torch.bfloat16) for _ in range(2)]
    for by, out in zip((attention_hopper, attention_kernel), outs, strict=True):
        by.attend(qkv, k, v, slots, lengths, fwd, heads, 0 if stored else n_live, out)
    return _gap(outs[0].float(), outs[1].float())


def _wide_rotation(device: torch.device, dtype: torch.dtype) -> float:
    """Compare queries and stored keys of 64 rows by the fused kernel of wide models and by the usual two.

    The test suite compares them in Triton's interpreter.
    """
    from ripple.models import kernels, skinny

    n_rows, n_heads, k_heads, d, inner = 64, 64, 32, 128, 512
    how: dict[str, Any] = {"device": device, "dtype": dtype}
    x, weight = torch.randn(n_rows, inner, **how), torch.randn((n_heads + 2 * k_heads) * d, inner, **how)
    cos, sin = torch.randn(2, 256, d, device=device)
    pos, slots = (
        torch.arange(n_rows, device=device)[None] * 4,
        torch.ones(1, dtype=torch.int64, device=device),
    )
    assert skinny.can_rotate(n_rows, weight, d)
    both = []
    for fused in (True, False):
        k, v = torch.zeros(2, 2, k_heads, 256, d, **how)
        turn = kernels.Rotation(pos, cos, sin, (k, v), slots, 32, n_heads, in_fp32=True)
        qkv = skinny.rotated_qkv(x, weight, None, turn) if fused else x @ weight.t()
        if not fused:
            kernels.rotate_and_store(qkv, turn)
        both.append(torch.cat([qkv.flatten(), k.flatten(), v.flatten()]).float())
    return _gap(*both)


def _plain_twin(engine: Engine) -> Engine:
    """Return an engine on the same weights and stored keys that uses no kernels of ours and no graphs."""
    model = engine.model
    twin = Engine(Transformer(model.config, model.weights))
    twin.borrow_keys(engine)
    return twin


def _lookahead(engine: Engine, settings: Settings) -> Session:
    """Decode until a lookahead is pending that reuses keys where it can."""
    session = engine.submit(PROMPT, settings)
    while session.ask is None or not session.ask.branches or session.opens:
        engine.tick()
    return session


def _base(engine: Engine, session: Session) -> torch.Tensor:
    """Return the base rows of the pending ask from a forward without branches."""
    reading = session.lay_out(packed=True)
    reading.base.strip.branches.clear()
    return _logits(engine, Reading(reading.base, [], None, None))[0]


def _logits(engine: Engine, reading: Reading) -> list[torch.Tensor]:
    logits = engine.model.logits(engine.hidden_states([reading]))
    return [logits[draft.rows].float() for draft in reading.drafts]


def _largest(some: list[torch.Tensor], others: list[torch.Tensor]) -> float:
    return max(_gap(a, b) for a, b in zip(some, others, strict=True))


def _gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


def _decode_alike(folder: Path, device: str) -> None:
    """Check in fp32 that requests give the same tokens alone and in company, for every cache."""
    engine = load(folder, device=device, dtype="float32")
    prompts = [PROMPT[: 5 + 7 * i] for i in range(4)]
    for method in (Confidence(), decoder("rps")):
        for cache in ("none", "prefix", "dual"):
            how: dict[str, Any] = {"decoder": method, "length": 64, "block": 32, "cache": cache}
            together = [result.token_ids for result in engine.generate(prompts, **how)]
            alone = [engine.generate(prompt, **how).token_ids for prompt in prompts]
            if together != alone:
                raise RippleError(f"{method.name} with cache {cache}: tokens differ alone and in company.")
