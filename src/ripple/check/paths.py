"""Fast paths against slow ones on whatever device is at hand; fails loudly.

The test suite proves these equalities on the CPU. This runs them where the suite does not: on a GPU, in fp32
to rounding and in bf16 to its noise. Run: `ripple check --device cuda`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from ripple.check import kernels
from ripple.engine.engine import Engine
from ripple.engine.layout import AskLayout
from ripple.engine.load import load
from ripple.engine.request import Request
from ripple.engine.runner import DeviceRunner
from ripple.errors import RippleError
from ripple.models.experts import ExpertLayer, ExpertTransformer
from ripple.models.fp8 import Fp8Transformer, has_fp8, with_activations
from ripple.models.load import network, torch_device
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.models.transformer import Transformer
from ripple.options import Options
from ripple.progress import Progress

TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1}  # |a - b| / |b|, random weights amplify rounding
# fp8 amplifies it more: what moves a number across the middle of two moves it by a step. So one layer, and
# activations in fp32 too, where paths that agree differ by less than a path that forgot to quantise.
FP8_TOLERANCE = {"fp8": 0.1, "fp8, activations in fp32": 0.04, "fp8 kernels": 0.02}
SIZES: dict[str, Any] = {
    "vocab_size": 512, "d_model": 256, "n_heads": 4, "seed": 1, "block_size": 32,
}  # fmt: skip
PROMPT = list(range(1, 40))
CACHES, BLOCK_CACHES = ("none", "prefix", "dual"), ("none", "exact")
SURE = 20.0  # biases times this decide between experts


class CheckedModel(NamedTuple):
    """One family's model."""

    family: str
    kv_heads: int
    caches: tuple[str, ...]
    n_layers: int = 4
    d_ff: int = 512
    has_experts: bool = False  # for which there is no fp8

    def write(self, folder: Path, **sizes: int) -> Path:
        """Write a random checkpoint."""
        own = {"n_kv_heads": self.kv_heads, "n_layers": self.n_layers, "d_ff": self.d_ff}
        return write_random_checkpoint(folder, self.family, **{**own, **SIZES, **sizes})


MODELS = (
    CheckedModel("llada", 4, CACHES),
    CheckedModel("dream", 2, CACHES),
    CheckedModel("sdar", 2, BLOCK_CACHES),
    CheckedModel("nemotron", 2, BLOCK_CACHES, n_layers=2),  # sharp attention amplifies rounding most
    CheckedModel("llada2", 2, BLOCK_CACHES, d_ff=1024, has_experts=True),  # of 128: kernels want whole tiles
)
RUNS = ("first run", "second run", "replay")  # on a GPU: eager, captured, replayed
DECODERS = ("confidence", "rps")
KERNELS = "kernels"  # what `only` calls those of wide models


def check_paths(device: str = "auto", only: Collection[str] = (), goes_on: bool = False) -> dict[str, float]:
    """Run every check; return the relative differences, or raise naming the first that is too large.

    `only` some families, or the wide models' "kernels": processes side by side spend less time compiling.
    One that `goes_on` raises at its end and names all that are too large.
    """
    target = torch_device(device)
    gaps: dict[str, float] = {}
    wrong: list[str] = []

    def note(where: str, name: str, gap: float, most: float) -> None:
        gaps[f"{where}: {name}"] = gap
        if not gap <= most:
            wrong.append(f"{where}: {name} differ by {gap:.3g} of their norm.")
            if not goes_on:
                raise RippleError(wrong[0])

    cases = [case for case in MODELS if not only or case.family in only]
    with_fp8 = [case for case in cases if has_fp8(target) and not case.has_experts]
    n_steps = len(with_fp8) + 3 * len(cases)
    with tempfile.TemporaryDirectory() as scratch, Progress("checking", n_steps) as progress:
        for case in cases:
            folder = case.write(Path(scratch) / case.family)
            for dtype in TOLERANCE:
                for name, gap in _path_gaps(_engine(folder, device, dtype), case.caches):
                    note(f"{case.family} {dtype}", name, gap, TOLERANCE[dtype])
                progress.update(note=f"{case.family} {dtype}")
            _check_company(folder, device, case.caches)
            progress.update(note=f"{case.family} alone and in company")
        for case in with_fp8:
            for dtype, engine in _fp8_engines(case, Path(scratch) / f"{case.family}-1", device):
                for name, gap in _path_gaps(engine, case.caches):
                    note(f"{case.family} {dtype}", name, gap, FP8_TOLERANCE[dtype])
            progress.update(note=f"{case.family} fp8")
    if not only or KERNELS in only:
        for dtype, name, gap in _kernel_gaps(target):
            note(dtype, name, gap, TOLERANCE.get(dtype, FP8_TOLERANCE["fp8 kernels"]))
    if wrong:
        raise RippleError(" ".join(wrong))
    return gaps


def _kernel_gaps(target: torch.device) -> Iterator[tuple[str, str, float]]:
    """Yield dtype, name and relative difference of each pair of kernels that only wide models use."""
    for dtype in TOLERANCE if target.type == "cuda" else ():
        for some in (kernels.wide_gaps, kernels.expert_gaps):
            for name, gap in some(target, getattr(torch, dtype)):
                yield dtype, name, gap
    for name, gap in kernels.fp8_gaps(target) if has_fp8(target) else ():
        yield "fp8", name, gap


def _engine(folder: Path, device: str, dtype: str) -> Engine:
    """Load a model; in bf16 its experts are chosen by their biases rather than by the rows.

    A row near a tie would be routed elsewhere by each path, and both would be right.
    """
    engine = load(folder, device=device, dtype=dtype)
    model: Any = engine.model
    for layer in model.weights.layers:
        if isinstance(layer, ExpertLayer) and dtype == "bfloat16":
            layer.router_bias = SURE * layer.router_bias
    return engine


def _fp8_engines(case: CheckedModel, folder: Path, device: str) -> Iterator[tuple[str, Engine]]:
    """Yield an engine of one layer in fp8, and the same with its activations in fp32."""
    case.write(folder, n_layers=1)
    engine = load(folder, device=device, dtype="fp8")
    yield "fp8", engine
    model: Any = engine.model
    weights = with_activations(model.weights, torch.float32)
    yield "fp8, activations in fp32", Engine(network(model.config, weights))


def _path_gaps(engine: Engine, caches: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    """Yield each pair of paths and the relative difference of their logits."""
    runner: Any = engine.runner
    for cache in caches:
        request = _pending_lookahead(engine, Options("lopa:k=4", 64, 32, cache))
        name = f"cache {cache}"
        packed = _logits(runner, request.build_layout("packed"))
        if engine.model.has_static_shapes:  # elsewhere the engine's path is the plain one
            plain = _logits(_plain_twin(engine), request.build_layout("packed"))
            for run in RUNS:
                packed = _logits(runner, request.build_layout("packed"))
                yield f"{name}: engine's path ({run}) and plain path", _largest(packed, plain)
        base = _logits(runner, _without_branches(request))[0]
        yield f"{name}: base rows of a packed and of a plain forward", kernels.gap(packed[0], base)
        if cache in ("dual", "exact"):
            exact = _logits(runner, request.build_layout("batched"))
            yield f"{name}: packed and exact branches", _largest(packed, exact)
        request.cancel()
        engine.tick()


def _plain_twin(engine: Engine) -> DeviceRunner:
    """Return a runner on the same weights and stored keys that uses no kernels of ours and no graphs."""
    model: Any = engine.model
    kinds = (Fp8Transformer, ExpertTransformer, Transformer)
    plain = next(kind for kind in kinds if isinstance(model, kind))
    twin = DeviceRunner(plain(model.config, model.weights))
    twin.store = cast(DeviceRunner, engine.runner).store
    return twin


def _pending_lookahead(engine: Engine, options: Options) -> Request:
    """Decode until a lookahead is pending that reads stored keys where it can."""
    request = engine.submit(PROMPT, options)
    while request.ask is None or not request.ask.branches or request.is_refresh:
        engine.tick()
    return request


def _without_branches(request: Request) -> AskLayout:
    """Return the base of the pending ask alone."""
    layout = request.build_layout("packed")
    layout.base.row.branches.clear()
    return AskLayout(layout.base, [])


def _logits(runner: DeviceRunner, layout: AskLayout) -> list[torch.Tensor]:
    logits = runner.model.logits(runner.hidden_states([layout]))
    return [logits[span.rows].float() for span in layout.spans]


def _largest(some: list[torch.Tensor], others: list[torch.Tensor]) -> float:
    return max(kernels.gap(a, b) for a, b in zip(some, others, strict=True))


def _check_company(folder: Path, device: str, caches: tuple[str, ...]) -> None:
    """Check in fp32 that requests give the same tokens alone and in company, for every cache."""
    engine = load(folder, device=device, dtype="float32")
    prompts = [PROMPT[: 5 + 7 * i] for i in range(4)]
    for decoder in DECODERS:
        for cache in caches:
            options = Options(decoder, 64, 32, cache)
            together = [result.token_ids for result in engine.generate(prompts, options)]
            alone = [engine.generate(prompt, options).token_ids for prompt in prompts]
            if together != alone:
                raise RippleError(f"{decoder} with cache {cache}: tokens differ alone and in company.")
