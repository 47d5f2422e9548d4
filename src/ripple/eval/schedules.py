"""Which forwards decoders ask for on real tasks: recorded here, replayed on a model of any size.

`ripple bench replay --schedules` and `throughput --schedules` time the lines at full size. All decoders have
the same items, with end fill on, and each is recorded under the caches that it is timed under. With a
`lookahead_budget`, what a request asks for depends on the load: it is recorded with so many requests at a
time, and the budget goes by the step times of `curve`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ripple.engine.engine import Engine
from ripple.eval.concurrency import read_budget, read_curve
from ripple.eval.decoding import NamedPrompt, decode
from ripple.eval.facts import choose_model, weights_hash
from ripple.eval.runner import Scorer
from ripple.eval.sweep import TaskSource, open_engine
from ripple.fields import param, split_specs
from ripple.files import Line, append_lines, read_lines, truncate_partial_line
from ripple.measurement import Measurement, listed, whole_numbers
from ripple.models.base import ModelConfig
from ripple.options import Options
from ripple.progress import Progress
from ripple.schedule import as_lists, forwards_of
from ripple.tasks import Item

CACHES = ("dual", "dual:keep_prompt=true", "slide", "none")
BLOCK_CACHES = ("exact", "none")


class Recorded(NamedTuple):
    """What a group of lines is about: one for each item."""

    model: str
    decoder: str
    cache: str
    budget: float | None
    at_once: int | None  # None: company changes nothing
    length: int


@dataclass(frozen=True)
class Schedules(Measurement):
    """Record which forwards decoders ask for on tasks, so that they can be timed at full model size."""

    name = "schedules"

    out: Path | None = param(None, "result lines; none is results/schedules-MODEL.jsonl; a run is resumed")
    model: str = param("tiny-llada", "an embedded name, a folder or a hub id")
    tasks: str = param("words,algebra,functions,programs", "task families, joined by commas")
    items: int = param(8, "test items per task", within="[1, inf)")
    decoders: str = param("confidence,rps,glide,glide/deep", "names, presets or specs, joined by commas")
    caches: str = param(
        "",
        f"caches, joined by commas; empty is {','.join(CACHES)}, of block models {','.join(BLOCK_CACHES)}",
    )
    length: int = param(256, "response positions", within="[1, inf)")
    budgets: str = param("none", "lookahead budgets, joined by commas; none: every branch is tried")
    at_once: str = param("8,32,64", "with a budget: requests at a time, joined by commas")
    curve: Path | None = param(None, "with a budget: lines of `ripple bench step`, whose times it goes by")
    shape: str = param("llada-8b", "the model shape of those lines")
    prompt: int = param(1000, "the prompt length of those lines")
    curve_dtype: str = param("bf16", "the dtype of those lines")
    device: str = param("auto", "cpu, cuda, cuda:N or auto")
    dtype: str = param("auto", "float32, bfloat16 or auto: bfloat16 on a GPU, float32 elsewhere")
    allow_code: bool = param(False, "run code that a model wrote, in the sandbox")

    def run(self) -> dict[str, Any]:
        """Record what `out` lacks."""
        model, source = choose_model(self.model), TaskSource(allow_code=self.allow_code)
        for name in listed(self.tasks):
            source.check(name, [model])
        curve = read_curve(self.curve, self.shape, self.prompt, self.curve_dtype)
        out = self.out or Path("results") / f"schedules-{model.name}.jsonl"
        truncate_partial_line(out)
        done = {_key_of(line) for line in read_lines(out)}
        engine = open_engine(model.given, self.device, self.dtype)
        if curve is not None:
            engine.step_curve = curve
        items = {name: source.task(name).test_items(self.items) for name in listed(self.tasks)}
        todo = [key for key in self._keys(model.name, engine.model.config) if key not in done]
        with Progress("schedules", len(todo)) as progress:
            for key in todo:
                append_lines(out, _lines(engine, key, items, {n: Scorer(source.task(n)) for n in items}))
                progress.update(note=" ".join(map(str, key[1:])))
        return {"bench": self.name, "new": len(todo), "files": str(out)}

    def _keys(self, model: str, config: ModelConfig) -> Iterator[Recorded]:
        usual = CACHES if config.attention_block is None else BLOCK_CACHES
        for decoder in split_specs(self.decoders):
            for cache in split_specs(self.caches) if self.caches else usual:
                for budget in map(read_budget, listed(self.budgets)):
                    loads = whole_numbers("at_once", self.at_once, 1) if budget is not None else [None]
                    for at_once in loads:
                        yield Recorded(model, decoder, cache, budget, at_once, self.length)


def _key_of(line: Line) -> Recorded:
    return Recorded(*(line[name] for name in Recorded._fields))


def _lines(
    engine: Engine, key: Recorded, items: dict[str, list[Item]], scorers: dict[str, Scorer]
) -> list[Line]:
    """Decode all items, of all tasks in turn, and return a line for each."""
    options = Options(
        key.decoder, key.length, cache=key.cache, end_fill=True, lookahead_budget=key.budget, trace=True
    )
    pairs = [(task, some[i]) for i in range(len(next(iter(items.values())))) for task, some in items.items()]
    prompts = [NamedPrompt(item.id, item.prompt, options) for _, item in pairs]
    if key.at_once is not None:
        engine.max_batch = key.at_once
    results = [result for _, result in sorted(decode(engine, prompts), key=lambda pair: pair[0])]
    lines = []
    for (task, item), result in zip(pairs, results, strict=True):
        events = result.trace or []
        (verdict,) = scorers[task].judge([item], [result.text])
        lines.append({
            "bench": "schedules", **key._asdict(), "task": task, "item": item.id,
            "weights": weights_hash(engine.folder), "device": engine.model.device.type,
            "block": events[0].data["block"], "prompt_tokens": result.prompt_tokens,
            "new_tokens": len(result.new_tokens), "right": verdict.right, "nfe": result.nfe,
            "canvases": result.canvases, "forwards": as_lists(forwards_of(events, item.id)),
        })  # fmt: skip
    return lines
