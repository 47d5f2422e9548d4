"""The decoder tables in Markdown, drawn from summary lines alone (`ripple.eval.lines`)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from ripple.analysis.statistics import Z_95, Paired, paired, pooled, unpack_bits
from ripple.files import Line

ORDER = (
    "default", "confidence", "factor", "frechet", "klass", "eb", "learn2pd", "wino", "lopa", "ete", "rps",
    "glide",
)  # fmt: skip
COLUMNS = ("decoder", "Acc", "95 %", "NFE", "NFE ×", "canvases", "tok/s", "tok/s ×")
SPEED = ("tok/s", "tok/s ×")
SEARCH = ("searches", "mean_candidates", "committed", "not_top_1")
TableKey = tuple[str, str, str]  # model, cache, task


def group_lines(lines: Iterable[Line]) -> dict[TableKey, list[Line]]:
    """Group summary lines by model, cache and task; a later line of the same setting replaces an earlier."""
    groups: dict[TableKey, dict[str, Line]] = {}
    for line in lines:
        key = (line["model"], line["cache"], line["task"])
        groups.setdefault(key, {})[line["setting"]] = line
    return {key: sorted(rows.values(), key=_place) for key, rows in groups.items()}


def best_of_sweeps(rows: list[Line]) -> list[Line]:
    """Keep one line per decoder: the most accurate of its sweep, the fewest forwards on ties."""
    best: dict[str, Line] = {}
    for line in rows:
        now = best.get(line["decoder"])
        if now is None or (line["accuracy"], -line["nfe"]) > (now["accuracy"], -now["nfe"]):
            best[line["decoder"]] = line
    return list(best.values())


def decoder_tables(lines: Iterable[Line], every: bool = False) -> str:
    """Return Markdown: one table per model, cache and task, best accuracy and speed in bold."""
    parts = []
    for (model, cache, task), rows in sorted(group_lines(lines).items()):
        shown = rows if every else best_of_sweeps(rows)
        parts.append(f"### {model}, {task}, cache {cache} (n = {rows[0]['n']})\n\n{_table(shown)}")
    return "\n\n".join(parts) + "\n"


def mean_table(lines: Iterable[Line], speed: bool = True) -> str:
    """Return Markdown: each decoder's mean over the tasks, per model and cache, with or without tok/s."""
    parts = []
    for (model, cache), rows in sorted(mean_lines(lines).items()):
        title = f"### {model}, cache {cache}, mean over {rows[0]['n_tasks']} families"
        parts.append(f"{title}\n\n{_table(rows, () if speed else SPEED)}")
    return "\n\n".join(parts) + "\n"


def mean_lines(lines: Iterable[Line], every: bool = False) -> dict[tuple[str, str], list[Line]]:
    """Average over the tasks, per model and cache: each decoder's best of its sweep, or every setting.

    Whatever lacks a task that others have is left out, for its mean would be one over easier items.
    """
    by_name: dict[tuple[str, str], dict[str, list[Line]]] = {}
    for (model, cache, _), rows in group_lines(lines).items():
        for line in rows if every else best_of_sweeps(rows):
            name = line["setting"] if every else line["decoder"]
            by_name.setdefault((model, cache), {}).setdefault(name, []).append(line)
    means = {}
    for key, groups in by_name.items():
        full = max(len(rows) for rows in groups.values())
        averaged = [_average(rows) for rows in groups.values() if len(rows) == full]
        means[key] = sorted(averaged, key=_place)
    return means


def paired_table(lines: Iterable[Line], decoder: str = "rps") -> str:
    """Return Markdown: one decoder against each other on the same items, by task and over all of them.

    Lines must hold one setting per decoder. The interval is of the difference between paired shares.
    """
    groups: dict[tuple[str, str], dict[str, dict[str, Line]]] = {}
    for (model, cache, task), rows in group_lines(lines).items():
        for line in rows:
            groups.setdefault((model, cache), {}).setdefault(line["decoder"], {})[task] = line
    head = ("model", "cache", "against", "family", "difference", "95 %", "only it", "only other", "p", "NFE")
    out = [f"| {' | '.join(head)} |", "| --- | --- | --- | --- |" + " ---: |" * 6]
    for (model, cache), decoders in sorted(groups.items()):
        ours = decoders.pop(decoder, {})
        for name, theirs in decoders.items():
            shared = [task for task in ours if task in theirs]
            duels = [_duel(ours[task], theirs[task]) for task in shared]
            if len(shared) > 1:
                duels.append(_all_of(duels))
            for task, duel in zip([*shared, "all"], duels, strict=False):
                out.append(f"| {model} | {cache} | {name} | {task} | {_compared(duel)} |")
    return "\n".join(out) + "\n"


def cache_table(lines: Iterable[Line]) -> str:
    """Return Markdown: what a cache does to each decoder's accuracy on the same items, in points.

    Caches are compared with none, or with the first by name where all lines have one.
    """
    groups: dict[tuple[str, str], dict[str, dict[str, Line]]] = {}
    for (model, cache, task), rows in group_lines(lines).items():
        for line in rows:
            groups.setdefault((model, line["setting"]), {}).setdefault(cache, {})[task] = line
    tasks = sorted({task for caches in groups.values() for one in caches.values() for task in one})
    head = ("model", "cache", "against", "decoder", *tasks, "all")
    out = [f"| {' | '.join(head)} |", "| --- | --- | --- | --- |" + " ---: |" * (len(tasks) + 1)]
    for (model, setting), caches in sorted(groups.items()):
        base = "none" if "none" in caches else min(caches)
        for cache in sorted(caches.keys() - {base}):
            duels = {
                task: _duel(caches[cache][task], line)
                for task, line in caches[base].items()
                if task in caches[cache]
            }
            if not duels:
                continue
            duels["all"] = _all_of(list(duels.values()))
            cells = [_with_half_width(duels[name]) if name in duels else "" for name in (*tasks, "all")]
            out.append(f"| {model} | {cache} | {base} | {setting} | {' | '.join(cells)} |")
    return "\n".join(out) + "\n"


class Compared(NamedTuple):
    """A setting's mean over the tasks, beside that of its decoder's own setting."""

    model: str
    cache: str
    decoder: str
    setting: str
    n: int  # items
    accuracy: float
    nfe: float
    canvases: float
    difference: tuple[float, float] | None  # over the items of both, and half its interval; None: its own


def compared_settings(lines: Iterable[Line]) -> list[Compared]:
    """Compare every setting with its decoder's own, on the items that both have: each task's first ones."""
    groups: dict[tuple[str, str], dict[str, dict[str, Line]]] = {}
    for (model, cache, task), rows in group_lines(lines).items():
        for line in rows:
            groups.setdefault((model, cache), {}).setdefault(line["setting"], {})[task] = line
    compared = []
    for (model, cache), settings in sorted(groups.items()):
        means = {name: _average(list(by_task.values())) for name, by_task in settings.items()}
        for name, by_task in sorted(settings.items(), key=lambda pair: _place(means[pair[0]])):
            mean, base = means[name], settings.get(means[name]["decoder"], {})
            duels = [_duel(line, base[task]) for task, line in by_task.items() if task in base]
            right = _all_of(duels).right if duels and name != mean["decoder"] else None
            n = sum(line["n"] for line in by_task.values())
            numbers = (n, mean["accuracy"], mean["nfe"], mean["canvases"])
            difference = None if right is None else (right.difference, right.half_width)
            compared.append(Compared(model, cache, mean["decoder"], name, *numbers, difference))
    return compared


def sweep_table(lines: Iterable[Line]) -> str:
    """Return Markdown: every setting's mean over the tasks, and the points over its decoder's own."""
    head = ("model", "cache", "setting", "items", "Acc", "NFE", "canvases", "against its own")
    out = [f"| {' | '.join(head)} |", "| --- | --- | --- |" + " ---: |" * 5]
    for row in compared_settings(lines):
        own = (
            ""
            if row.difference is None
            else " ± ".join((f"{100 * row.difference[0]:+.1f}", f"{100 * row.difference[1]:.1f}"))
        )
        cells = [str(row.n), f"{100 * row.accuracy:.1f}", f"{row.nfe:.2f}", f"{row.canvases:.1f}", own]
        out.append(f"| {row.model} | {row.cache} | {row.setting} | {' | '.join(cells)} |")
    return "\n".join(out) + "\n"


def search_table(lines: Iterable[Line]) -> str:
    """Return Markdown: what the searches of RPS did, for every line that was traced."""
    head = ("model", "cache", "family", "setting", "normal", "lookahead", "searches", "candidates",
            "committed", "not top-1")  # fmt: skip
    out = [f"| {' | '.join(head)} |", "| --- | --- | --- | --- |" + " ---: |" * 6]
    for (model, cache, task), rows in sorted(group_lines(lines).items()):
        for row in rows:
            if facts := row.get("search"):
                searches, candidates, committed, other = (facts[name] for name in SEARCH)
                numbers = f"{row['nfe_normal']:.2f} | {row['nfe_lookahead']:.2f} | {searches:.2f}"
                shares = f"{candidates:.2f} | {100 * committed:.1f} % | {100 * other:.1f} %"
                out.append(f"| {model} | {cache} | {task} | {row['setting']} | {numbers} | {shares} |")
    return "\n".join(out) + "\n"


class _Duel(NamedTuple):
    """Two settings on the same items; the difference is ours minus theirs."""

    right: Paired
    nfe_ours: float  # over all items
    nfe_theirs: float


def _duel(ours: Line, theirs: Line) -> _Duel:
    """Compare the items that both have: a shorter run has a task's first ones. NFE is of all of a line's."""
    n = min(ours["n"], theirs["n"])
    right = paired(*(unpack_bits(line["right"], line["n"])[:n] for line in (theirs, ours)))
    return _Duel(right, n * ours["nfe"], n * theirs["nfe"])


def _all_of(duels: Sequence[_Duel]) -> _Duel:
    right = pooled(duel.right for duel in duels)
    return _Duel(right, sum(duel.nfe_ours for duel in duels), sum(duel.nfe_theirs for duel in duels))


def _compared(duel: _Duel) -> str:
    right, n = duel.right, max(duel.right.n, 1)
    low, high = (100 * end for end in right.interval)
    p = f"{right.p:.3f}" if right.p >= 0.001 else "< 0.001"
    counts = f"{right.only_b} | {right.only_a}"
    forwards = f"{duel.nfe_ours / n:.1f} : {duel.nfe_theirs / n:.1f}"
    return f"{100 * right.difference:+.1f} | {low:+.1f} to {high:+.1f} | {counts} | {p} | {forwards}"


def _with_half_width(duel: _Duel) -> str:
    return f"{100 * duel.right.difference:+.1f} ± {100 * duel.right.half_width:.1f}"


def _place(line: Line) -> tuple[int, str]:
    """Order decoders as the paper's table does, settings of one by name."""
    name = line["decoder"]
    return (ORDER.index(name) if name in ORDER else len(ORDER)), line["setting"]


def _average(rows: Sequence[Line]) -> Line:
    names = ("accuracy", "nfe", "canvases", "tps")
    mean = {name: statistics.fmean(row[name] for row in rows) for name in names}  # in whatever order
    variance = sum(row["accuracy"] * (1 - row["accuracy"]) / row["n"] for row in rows) / len(rows) ** 2
    half = Z_95 * math.sqrt(variance)  # tasks are drawn apart, so their variances add
    interval = (max(0.0, mean["accuracy"] - half), min(1.0, mean["accuracy"] + half))
    settings = {row["setting"] for row in rows}
    name = rows[0]["decoder"]
    setting = settings.pop() if len(settings) == 1 else f"{name}, best of sweep"
    return {"decoder": name, "setting": setting, "n_tasks": len(rows), "interval": interval, **mean}


def _table(rows: Sequence[Line], hidden: Collection[str] = ()) -> str:
    base = next((row for row in rows if row["decoder"] == "default"), None)
    most, least = max(row["accuracy"] for row in rows), min(row["nfe"] for row in rows)
    fastest = max(row["tps"] for row in rows)
    columns = [name for name in COLUMNS if name not in hidden]
    out = [f"| {' | '.join(columns)} |", f"| --- |{' ---: |' * (len(columns) - 1)}"]
    for row in rows:
        low, high = row["interval"]
        cells = {
            "decoder": row["setting"],
            "Acc": _bold(f"{100 * row['accuracy']:.1f}", row["accuracy"] == most),
            "95 %": f"{100 * low:.1f}-{100 * high:.1f}",
            "NFE": _bold(f"{row['nfe']:.1f}", row["nfe"] == least),
            "NFE ×": "" if base is None else _ratio(base["nfe"], row["nfe"]),
            "canvases": f"{row['canvases']:.1f}",
            "tok/s": _bold(f"{row['tps']:.0f}", row["tps"] == fastest),
            "tok/s ×": "" if base is None else _ratio(row["tps"], base["tps"]),
        }
        out.append(f"| {' | '.join(cells[name] for name in columns)} |")
    return "\n".join(out)


def _ratio(part: float, whole: float) -> str:
    return f"{part / whole:.2f}" if whole else ""


def _bold(text: str, is_best: bool) -> str:
    return f"**{text}**" if is_best else text
