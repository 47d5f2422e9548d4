"""The report's tables, from result lines; columns and rows that begin with "paper: " are the paper's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ripple.eval.settings import SCORINGS, four, pivots
from ripple.files import Line
from ripple.paper import published
from ripple.paper.document import PAPER, ReportTable
from ripple.paper.experiments import CACHES, EXPERIMENTS, MIRRORS
from ripple.paper.judge import main_tables
from ripple.paper.line_index import LineIndex

METHODS = published.METHODS


def mirror(task: str) -> str:
    """Name a task together with the benchmark it mirrors."""
    if task in MIRRORS:
        return f"{task} (mirrors {published.BENCHMARKS[MIRRORS[task]]})"
    return published.BENCHMARKS.get(task, task)


def percent(share: float | None) -> str:
    """Write a share with one decimal, or a dash."""
    return "–" if share is None else f"{100 * share:.1f}"


def times(value: float | None, of: float | None) -> str:
    """Write value / of as a speed-up, or a dash."""
    return f"{value / of:.2f}×" if value and of else "–"


def interval(line: Line) -> str:
    """Write a line's 95 % interval in percent."""
    low, high = line["interval"]
    return f"{100 * low:.1f}–{100 * high:.1f}"


def _bold(cells: list[str], values: Sequence[float | None], best: float | None) -> list[str]:
    pairs = zip(cells, values, strict=True)
    return [f"**{cell}**" if best is not None and value == best else cell for cell, value in pairs]


def main_table(index: LineIndex) -> Iterator[ReportTable]:
    """Yield one table per model and task, ours and the paper's side by side."""
    names = ("Acc", "NFE", "NFE ×", "TPS", "TPS ×")
    columns = (
        "decoder",
        "Acc",
        "95 %",
        "NFE",
        "NFE ×",
        "tok/s",
        "tok/s ×",
        *(PAPER + name for name in names),
    )
    for model, task, best in main_tables(index):
        theirs = published.MAIN[index.counterpart(model)].get(MIRRORS.get(task, task), {})
        rows = list(best.values())
        speeds = [index.tps(model, task, row["setting"]) for row in rows]
        accuracies, nfes = [row["accuracy"] for row in rows], [row["nfe"] for row in rows]
        fastest = max((s for s in speeds if s), default=None)
        acc = _bold([percent(a) for a in accuracies], accuracies, max(accuracies))
        nfe = _bold([f"{n:.1f}" for n in nfes], nfes, min(nfes))
        tps = _bold([f"{s:.1f}" if s else "–" for s in speeds], speeds, fastest)
        base, base_tps = best["default"]["nfe"], index.tps(model, task, "default")
        cells = [
            [
                _label(row), acc[i], interval(row), nfe[i], times(base, nfes[i]), tps[i],
                times(speeds[i], base_tps), *_paper_cells(theirs.get(row["decoder"])),
            ]
            for i, row in enumerate(rows)
        ]  # fmt: skip
        caption = f"{model}, {mirror(task)}, n = {rows[0]['n']}; the paper's: {index.counterpart(model)}"
        yield ReportTable(columns, cells, caption)


def _label(line: Line) -> str:
    """Name a decoder and, where a sweep chose it, its setting."""
    _, _, fields = line["setting"].partition(":")
    return f"{METHODS[line['decoder']]}{f' ({fields})' if fields else ''}"


def _paper_cells(row: published.MainRow | None) -> list[str]:
    if row is None:
        return ["–"] * 5
    speed = [f"{row.nfe_speedup:.2f}×", f"{row.tps:.2f}", f"{row.tps_speedup:.2f}×"]
    return [f"{row.accuracy:.2f}", f"{row.nfe:.1f}", *speed]


def length_tables(index: LineIndex) -> Iterator[ReportTable]:
    """Yield one table per model and task: accuracy and NFE speed-up at three lengths."""
    experiment = EXPERIMENTS["length"]
    lengths = [round(index.length * share) for share in experiment.lengths]
    columns = ("decoder", *(f"{what}, L = {length}" for length in lengths for what in ("Acc", "NFE ×")))
    for model in index.models:
        for task in index.tasks_of(experiment):
            settings = four(index.family(model))
            rows_at = index.across(model, task, settings, [("none", length) for length in lengths])
            by_length = [{row["decoder"]: row for row in rows} for rows in rows_at]
            if sum(bool(lines) for lines in by_length) < 2:
                continue
            rows = []
            for setting in settings:
                cells = [METHODS[setting.name]]
                for lines in by_length:
                    line, base = lines.get(setting.name), lines.get("default")
                    cells += [percent(line["accuracy"] if line else None)]
                    cells += [times(base["nfe"] if base else None, line["nfe"] if line else None)]
                rows.append(cells)
            rows += _paper_lengths(index, model, task, lengths)
            n = next(row["n"] for lines in by_length for row in lines.values())
            yield ReportTable(columns, rows, f"{model}, {mirror(task)}, n = {n}")


def _paper_lengths(index: LineIndex, model: str, task: str, lengths: Sequence[int]) -> list[list[str]]:
    rows = []
    theirs = published.LENGTH.get(index.counterpart(model), {}).get(MIRRORS.get(task, task), {})
    for name, at in theirs.items():
        cells = [PAPER + METHODS[name]]
        for length in lengths:
            row = at.get(length)
            cells += [f"{row.accuracy:.2f}", f"{row.nfe_speedup:.2f}×"] if row else ["–", "–"]
        rows.append(cells)
    return rows


def sweep_tables(index: LineIndex, name: str) -> Iterator[ReportTable]:
    """Yield one table per model of a hyper-parameter of RPS."""
    field = "lam" if name == "lambda" else name
    theirs = published.SWEEPS.get(name, {})
    columns = [name, "Acc", "95 %", "NFE", "candidates", "pivots committed, %", "of them not top-1, %"]
    columns += [PAPER + what for what in ("Acc", "NFE", "candidates")] if theirs else []
    for model in index.models:
        for task in index.tasks_of(EXPERIMENTS[name]):
            lines = [r for r in index.of_experiment(name, model, task) if r.get("search")]
            rows = []
            for line in lines:
                search, value = line["search"], line["fields"][field]
                cells = [f"{value:g}", percent(line["accuracy"]), interval(line), f"{line['nfe']:.1f}"]
                cells += [f"{search['mean_candidates']:.2f}"]
                cells += [percent(search["committed"]), percent(search["not_top_1"])]
                if theirs:
                    row = theirs.get(value)
                    cells += (
                        [f"{row.accuracy:.2f}", f"{row.nfe:.2f}", f"{row.candidates:.2f}"]
                        if row
                        else ["–"] * 3
                    )
                is_main = line["setting"] == index.rps(model).describe()
                rows.append([f"**{cell}**" if is_main and i == 0 else cell for i, cell in enumerate(cells)])
            if len(rows) > 1:
                about = "; the paper's: LLaDA on GSM8K" if theirs else ""
                yield ReportTable(columns, rows, f"{model}, {mirror(task)}, n = {lines[0]['n']}{about}")


def scoring_of(line: Line) -> str:
    """Name the scoring of an ablation line."""
    fields = line["fields"]
    if fields["candidates"] == "greedy":
        return "greedy"
    return "entropy only" if fields["lam"] == 0 else "full"


def pivot_tables(index: LineIndex) -> Iterator[ReportTable]:
    """Yield one table per model: pivot rule by scoring."""
    columns = ("pivot rule", *(f"{what}, {scoring}" for scoring in SCORINGS for what in ("Acc", "NFE")))
    for model in index.models:
        for task in index.tasks_of(EXPERIMENTS["pivot"]):
            lines = [r for r in index.rows(model, task, pivots(index.family(model))) if r["decoder"] == "rps"]
            line_of = {(row["fields"]["pivot"], scoring_of(row)): row for row in lines}
            rows = []
            for pivot in dict.fromkeys(key[0] for key in line_of):
                cells = [pivot.replace("_", " ")]
                for scoring in SCORINGS:
                    line = line_of.get((pivot, scoring))
                    cells += [percent(line["accuracy"]), f"{line['nfe']:.1f}"] if line else ["–", "–"]
                rows.append(cells)
            if len(lines) > 2:
                yield ReportTable(columns, rows, f"{model}, {mirror(task)}, n = {lines[0]['n']}")


def breakdown_table(index: LineIndex) -> ReportTable | None:
    """Return forwards of RPS by kind: how many, how long, what share of the time."""
    columns = (
        "where",
        *(f"{kind}: {what}" for kind in ("normal", "lookahead") for what in ("n", "ms", "% of time")),
    )
    rows = []
    for model in index.models:
        for task in index.tasks_of(EXPERIMENTS["main"]):
            line = index.timing(model, task, index.rps(model).describe())
            if line:
                kinds = [line["forwards"][kind] for kind in ("normal", "lookahead")]
                spent = sum(f["count"] * f["ms"] for f in kinds)
                cells = [f"{model}, {task}"]
                for f in kinds:
                    cells += [
                        f"{f['count']:.1f}",
                        f"{f['ms']:.2f}",
                        f"{100 * f['count'] * f['ms'] / spent:.1f}",
                    ]
                rows.append(cells)
    if not rows:
        return None
    theirs = [f"{value:.1f}" for kind in ("normal", "lookahead") for value in published.BREAKDOWN[kind]]
    return ReportTable(columns, [*rows, [PAPER + "LLaDA, GSM8K, A100", *theirs]])


def cache_tables(index: LineIndex) -> Iterator[ReportTable]:
    """Yield one table per model and task: decoders by caches."""
    for model in index.models:
        for task in index.tasks_of(EXPERIMENTS["caches"]):
            settings = four(index.family(model))
            rows_at = index.across(model, task, settings, [(cache, index.length) for cache in CACHES])
            by_cache = {
                cache: {row["decoder"]: row for row in lines}
                for cache, lines in zip(CACHES, rows_at, strict=True)
                if lines
            }
            if len(by_cache) < 2:
                continue
            columns = ["decoder", *(f"{what}, {c}" for c in by_cache for what in ("Acc", "NFE", "tok/s ×"))]
            base = index.tps(model, task, "default")
            rows = []
            for setting in settings:
                cells = [METHODS[setting.name]]
                for cache, lines in by_cache.items():
                    line = lines.get(setting.name)
                    cells += [percent(line["accuracy"]), f"{line['nfe']:.1f}"] if line else ["–", "–"]
                    cells.append(times(index.tps(model, task, setting.describe(), cache), base))
                rows.append(cells)
            n = next(row["n"] for lines in by_cache.values() for row in lines.values())
            yield ReportTable(
                columns, rows, f"{model}, {mirror(task)}, n = {n}; speed-ups over Default without a cache"
            )
