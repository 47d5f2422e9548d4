"""Every decoder on every task family: accuracy with an interval, forwards, canvases, tokens per second.

Run: `ripple bench decoders`, or on a GPU `ripple bench decoders --device cuda --items 1000 --workers 8`. Each
setting becomes one line of the result file as soon as it is done; a killed run resumes with what is missing.
A piece of work is one model, task and cache with all its settings, so that `default`, which speed-ups are
taken over, is measured in the same process and the same minute as the others.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ripple.analysis.ablation import ablation_figure
from ripple.analysis.plots import draw_beside, speed_quality
from ripple.analysis.tables import (
    cache_table,
    decoder_tables,
    mean_lines,
    mean_table,
    paired_table,
    search_table,
    sweep_table,
)
from ripple.caches import cache
from ripple.decoders import DECODERS, Decoder, decoder, family_decoder
from ripple.errors import RippleError
from ripple.eval.facts import ModelChoice, Variant, choose_model, setting_label
from ripple.eval.lines import read_results
from ripple.eval.settings import every_decoder, every_setting
from ripple.eval.sweep import (
    Piece,
    SettingKey,
    TaskSource,
    Want,
    check_weights,
    fill,
    raise_failures,
    setting_key,
    summaries,
)
from ripple.fields import param, split_specs
from ripple.files import Line, locked, truncate_partial_line
from ripple.measurement import Measurement, listed
from ripple.models.hub import embedded_models
from ripple.models.load import torch_device
from ripple.options import LOOKAHEADS
from ripple.progress import Progress
from ripple.tasks import TASKS, get_task

CACHES, BLOCK_CACHES = ("none", "prefix", "dual"), ("none", "exact")
SWEEP_CACHE = "none"  # sweeps run without a cache; the other caches get one setting per decoder


@dataclass(frozen=True)
class Decoders(Measurement):
    """Every decoder on the generated tasks: accuracy, forwards, canvases, tokens per second."""

    name = "decoders"

    out: Path | None = param(None, "result lines; none is results/decoders-DEVICE.jsonl; a run is resumed")
    models: str = param(
        "", "embedded names, folders or hub ids, joined by commas; empty is all embedded ones"
    )
    tasks: str = param(
        ",".join(TASKS), "task families, joined by commas; words/development for items to choose settings on"
    )
    caches: str = param(
        "",
        f"caches, joined by commas; empty is none, on a GPU {','.join(CACHES)}, of block models "
        f"{','.join(BLOCK_CACHES)}",
    )
    decoders: str = param(",".join(DECODERS), "names, presets or name:field=value, joined by commas")
    end_fill: bool | None = param(None, "fill what follows a final end token; none: as each decoder does")
    lookahead: str = param("packed", "how branches are evaluated", choices=LOOKAHEADS)
    items: int | None = param(None, "test items per task; none is 4, on a GPU 1000", within="[1, inf)")
    length: int | None = param(None, "response positions; none is 128, on a GPU 256", within="[1, inf)")
    sweeps: bool = param(False, "all settings, not one per decoder; always on a GPU")
    workers: int = param(1, "processes that share the device", within="[1, inf)")
    device: str = param("auto", "cpu, cuda, cuda:N or auto")
    dtype: str = param("auto", "float32, bfloat16, fp8 or auto: bfloat16 on a GPU, float32 elsewhere")
    block_size: int | None = param(None, "positions per block of block models; none: as their folder says")
    allow_code: bool = param(False, "run code that a model wrote, in the sandbox")

    def run(self) -> dict[str, Any]:
        """Run what is missing in `out`, draw its tables and figure, and return their means."""
        on_gpu = torch_device(self.device).type == "cuda"
        names = listed(self.models) or embedded_models()
        models = [choose_model(name, self.block_size) for name in names]
        source = TaskSource(allow_code=self.allow_code)
        self._check(source, models)
        out = self.out or Path("results") / f"decoders-{'gpu' if on_gpu else 'cpu'}.jsonl"
        start = time.perf_counter()
        with locked(out):
            lines = read_results(out)
            check_weights(out, lines, models)
            truncate_partial_line(out)
            done = {setting_key(line) for line in lines if line["kind"] == "summary"}
            pieces = list(self._pieces(models, source, done, on_gpu))
            total = sum(piece.cost(setting) for piece in pieces for setting in piece.settings)
            costs = {
                setting_label(s, self._variant): piece.cost(s) for piece in pieces for s in piece.settings
            }
            with Progress("decoders", total, is_quiet=not pieces) as progress:
                new, failures = fill(
                    out, pieces, summaries, self.workers, lambda line: costs[line["setting"]], progress
                )
        shown = [line for line in [*lines, *new] if line["kind"] == "summary"]
        told: dict[str, Any] = {"bench": self.name, "new_lines": len(new)}
        told["seconds"] = round(time.perf_counter() - start, 1)
        told |= draw(out) if shown else {}
        raise_failures(failures, out)
        return told | {"means": _means(shown)}

    @property
    def _variant(self) -> Variant:
        return Variant(self.end_fill, self.lookahead)

    def _check(self, source: TaskSource, models: Sequence[ModelChoice]) -> None:
        """Refuse unknown names and code that may not run."""
        if not (listed(self.tasks) and split_specs(self.decoders)):
            raise RippleError("Name at least one task and one decoder.")
        for spec in split_specs(self.decoders):
            decoder(spec)
        for name in listed(self.tasks):
            get_task(name)
            source.check(name, models)

    def _pieces(
        self, models: Sequence[ModelChoice], source: TaskSource, done: Collection[SettingKey], on_gpu: bool
    ) -> Iterator[Piece]:
        """Yield the work that has no line yet."""
        n, length = self.items or (1000 if on_gpu else 4), self.length or (256 if on_gpu else 128)
        caches = {model: self._caches(model, on_gpu) for model in models}
        for which in dict.fromkeys(name for names in caches.values() for name in names):
            for model in [model for model in models if which in caches[model]]:
                settings = self._settings(model, (self.sweeps or on_gpu) and which == SWEEP_CACHE)
                for task in listed(self.tasks):
                    missing = tuple(
                        setting
                        for setting in settings
                        if Want(model, task, which, length, setting, self._variant).key(n) not in done
                    )
                    if missing:
                        how = (missing, source, self.device, self.dtype, self._variant)
                        yield Piece(model, task, which, length, n, *how)

    def _caches(self, model: ModelChoice, on_gpu: bool) -> list[str]:
        """Return the caches that a model is measured under."""
        usual = BLOCK_CACHES if model.attends_by_block else CACHES
        return [cache(name).describe() for name in listed(self.caches) or (usual if on_gpu else ("none",))]

    def _settings(self, model: ModelChoice, sweeps: bool) -> list[Decoder]:
        """Return the settings of a model: those of each decoder that is named, and each spec with fields."""
        wanted = every_setting if sweeps else every_decoder
        specs = split_specs(self.decoders)
        named = [one for one in wanted(model.family, model.has_filter) if one.name in specs]
        exact = [family_decoder(spec, model.family) for spec in specs if spec not in DECODERS]
        return named + [one for one in exact if one not in named]


def draw(out: Path) -> dict[str, str]:
    """Write the tables and the speed-quality figure of a result file beside it, and name the files.

    What the lines cannot say of how they came about stands in `<name>.notes.md` and is copied in.
    """
    lines = [line for line in read_results(out) if line["kind"] == "summary"]
    if not lines:
        raise RippleError(f"{out} holds no summary lines to draw.")
    notes = out.with_suffix(".notes.md")
    published = [line for line in lines if line["setting"] in _published(line["model_family"])]
    parts = [f"# Decoders\n\nDrawn from `{out.name}`.\n"]
    if notes.exists():
        parts.append(notes.read_text(encoding="utf-8"))
    parts += ["## Means, published settings\n", mean_table(published)]
    if len(published) < len(lines):
        parts += ["## Every setting beside its decoder's published one, item by item\n", sweep_table(lines)]
        allowed = [line for line in lines if line["decoder"] != "rps" or line in published]
        parts += ["## Means, the most accurate setting of each baseline's sweep\n", mean_table(allowed)]
    for title, name in (("RPS", "rps"), ("Glide", "glide")):
        if any(line["decoder"] == name for line in published):
            heading = f"## {title} against each decoder, item by item (exact McNemar)\n"
            parts += [heading, paired_table(published, name)]
    if len({line["cache"] for line in published}) > 1:
        title = "## What a cache costs each decoder, item by item (points, 95 %)\n"
        parts += [title, cache_table(published)]
    parts += ["## RPS's forwards and searches\n", search_table(lines)]
    parts += ["## By family, every setting\n", decoder_tables(lines, every=True)]
    return draw_beside(out, "\n".join(parts), functools.partial(_figures, lines))


def _figures(lines: Sequence[Line], path: Path) -> None:
    """Draw all settings' speed and quality and, where glide has several, what each is worth."""
    speed_quality(lines, path)
    if len({line["setting"] for line in lines if line["decoder"] == "glide"}) > 2:
        ablation_figure(lines, path.with_stem(f"{path.stem}-glide"))


def _published(family: str) -> set[str]:
    return {setting.describe() for setting in every_decoder(family)}


def _means(lines: Sequence[Line]) -> dict[str, Line]:
    """Return the closing table: each decoder's mean over the tasks."""
    return {
        f"{model}, cache {cache_name}, {line['setting']}": {
            "tasks": line["n_tasks"], "accuracy %": round(100 * line["accuracy"], 1),
            "NFE": round(line["nfe"], 1), "canvases": round(line["canvases"], 1), "tok/s": round(line["tps"]),
        }
        for (model, cache_name), rows in sorted(mean_lines(lines).items())
        for line in rows
    }  # fmt: skip
