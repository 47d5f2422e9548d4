"""What fp8 changes: the KL of a model's logits on its own canvases, and answers scored in both dtypes.

Where the device has fp8 its kernels run; elsewhere the plain network does, which rounds alike (models/fp8.py)
and keeps everything else in the usual dtype. Lines say which it was. Answers come from two runs of
`ripple bench decoders`, one as usual and one with `--dtype fp8`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ripple.analysis.fp8 import fp8_page
from ripple.analysis.plots import draw_beside
from ripple.engine.engine import Engine
from ripple.engine.prompts import Prompt
from ripple.engine.stats import log_probs
from ripple.errors import RippleError
from ripple.eval.facts import choose_model, device_name, weights_hash
from ripple.eval.lines import read_results
from ripple.eval.sweep import TaskSource, open_engine
from ripple.fields import param
from ripple.files import Line, append_line, read_lines, truncate_partial_line
from ripple.measurement import Measurement, listed
from ripple.models.checkpoint import read_weights
from ripple.models.fp8 import FP8, has_fp8, with_activations
from ripple.models.load import dtype_name, network
from ripple.options import Options
from ripple.progress import Progress

COMPARED = 16  # canvases of an answer, spread evenly


class Setting(NamedTuple):
    """What one line is about."""

    model: str
    task: str
    decoder: str
    length: int
    n: int


class Pair(NamedTuple):
    """One model twice."""

    usual: Engine
    fp8: Engine
    by: str  # what runs fp8: kernels, or the plain network


@dataclass(frozen=True)
class Fp8(Measurement):
    """How far fp8 moves a model's logits (KL), and what it does to accuracy and forwards."""

    name = "fp8"

    out: Path | None = param(None, "result lines; none is results/fp8-DEVICE.jsonl; a run is resumed")
    models: str = param("tiny-llada,tiny-dream", "embedded names, folders or hub ids, joined by commas")
    tasks: str = param("words,algebra,functions,programs", "task families, joined by commas")
    decoder: str = param("glide", "whose canvases the logits are compared on")
    items: int = param(32, "test items per task", within="[1, inf)")
    length: int = param(256, "response positions", within="[1, inf)")
    device: str = param("auto", "cpu, cuda, cuda:N or auto")
    usual: Path | None = param(None, "lines of `ripple bench decoders` in the usual dtype")
    fp8: Path | None = param(None, "the same settings with `--dtype fp8`, to compare item by item")

    def run(self) -> dict[str, Any]:
        """Measure what `out` lacks and draw its tables."""
        if (self.usual is None) != (self.fp8 is None):
            raise RippleError("Give both --usual and --fp8, or neither.")
        answers = [read_results(path) if path else [] for path in (self.usual, self.fp8)]
        pairs = {name: open_pair(name, self.device) for name in listed(self.models)}
        if not pairs:
            raise RippleError("Name at least one model.")
        device = next(iter(pairs.values())).usual.model.device.type
        out = self.out or Path("results") / f"fp8-{device}.jsonl"
        truncate_partial_line(out)
        done = {Setting(*(line[name] for name in Setting._fields)) for line in read_lines(out)}
        todo = [one for one in self._settings(pairs) if one[0] not in done]
        with Progress("fp8", len(todo)) as progress:
            for setting, pair in todo:
                append_line(out, _line(pair, setting))
                progress.update(note=" ".join(map(str, setting)))
        page = fp8_page(out.name, read_lines(out), *answers)
        return {"bench": self.name, "new_lines": len(todo), **draw_beside(out, page)}

    def _settings(self, pairs: dict[str, Pair]) -> Iterator[tuple[Setting, Pair]]:
        for given, pair in pairs.items():
            for task in listed(self.tasks):
                name = choose_model(given).name
                yield Setting(name, task, self.decoder, self.length, self.items), pair


def open_pair(model: str, device: str) -> Pair:
    """Return engines of one model in its usual dtype and in fp8, by kernels where the device has them."""
    usual = open_engine(model, device)
    if has_fp8(usual.model.device):
        return Pair(usual, open_engine(model, device, "fp8"), "kernels")
    assert usual.folder is not None
    config = usual.model.config
    weights = read_weights(usual.folder, config, usual.model.device, FP8)
    plain = network(config, with_activations(weights, usual.model.dtype))
    return Pair(usual, Engine(plain, usual.tokenizer), "plain network")


def _line(pair: Pair, setting: Setting) -> Line:
    """Compare the logits on the canvases of a task's items."""
    prompts = [item.prompt for item in TaskSource().task(setting.task).test_items(setting.n)]
    kl, same_best = logit_gap(pair, prompts, Options(setting.decoder, setting.length))
    return {
        "bench": "fp8", **setting._asdict(), "weights": weights_hash(pair.usual.folder),
        "device_name": device_name(pair.usual), "dtype": dtype_name(pair.usual.model), "fp8_by": pair.by,
        "rows": len(kl), "kl_mean": float(kl.mean()), "kl_max": float(kl.max()),
        "same_best": float(same_best.float().mean()),
    }  # fmt: skip


@torch.inference_mode()
def logit_gap(pair: Pair, prompts: Sequence[Prompt], options: Options) -> tuple[torch.Tensor, torch.Tensor]:
    """Return KL(usual || fp8), nats, of masked rows that are read, and whether the best token is the same.

    The usual dtype decides what is committed; both see the same whole canvases.
    """
    gaps, same = [], []
    mask_id = pair.usual.model.config.mask_id
    for prompt in prompts:
        request = pair.usual.submit(prompt, options)
        most_masked = request.length
        for _ in pair.usual.steps([request]):
            if request.ask is None or request.canvas.n_masked > most_masked:
                continue
            most_masked = request.canvas.n_masked - request.length // COMPARED
            layout = request.build_layout("packed")
            a, b = (
                log_probs(
                    engine.model.logits(engine.runner.hidden_states([layout])[layout.base.rows]), mask_id
                )
                for engine in (pair.usual, pair.fp8)
            )
            gaps.append((a.exp() * (a - b)).sum(dim=-1).clamp_min(0))
            same.append(a.argmax(-1) == b.argmax(-1))
    return torch.cat(gaps), torch.cat(same)
