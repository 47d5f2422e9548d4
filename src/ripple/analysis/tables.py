"""The decoder tables in Markdown, drawn from result lines alone."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from ripple.analysis.lines import Line
from ripple.analysis.paired import mcnemar
from ripple.analysis.statistics import Z_95

ORDER = (
    "default",
    "confidence",
    "factor",
    "frechet",
    "klass",
    "eb",
    "learn2pd",
    "wino",
    "lopa",
    "ete",
    "rps",
)
COLUMNS = ("decoder", "Acc", "95 %", "NFE", "NFE ×", "rows", "tok/s", "tok/s ×")
SPEED = ("tok/s", "tok/s ×")
SEARCH = ("searches", "mean_candidates", "committed", "not_top_1")
Key = tuple[str, str, str]  # model, cache, family


def group_lines(lines: Iterable[Line]) -> dict[Key, list[Line]]:
    """Group result lines by model, cache and family; a later line of the same setting replaces an earlier."""
    groups: dict[Key, dict[str, Line]] = {}
    for line in lines:
        key = (line["model"], line["cache"], line["family"])
        groups.setdefault(key, {})[line["setting"]] = line
    return {key: sorted(rows.values(), key=_place) for key, rows in groups.items()}


def best_of_sweeps(rows: list[Line]) -> list[Line]:
    """Keep one line per decoder: the most accurate of its sweep, the fewest forwards on ties."""
    best: dict[str, Line] = {}
    for line in rows:
        now = best.get(line["method"])
        if now is None or (line["accuracy"], -line["nfe"]) > (now["accuracy"], -now["nfe"]):
            best[line["method"]] = line
    return list(best.values())


def decoder_tables(lines: Iterable[Line], every: bool = False) -> str:
    """Return Markdown: one table per model, cache and family, best accuracy and speed in bold."""
    parts = []
    for (model, cache, family), rows in sorted(group_lines(lines).items()):
        shown = rows if every else best_of_sweeps(rows)
        parts.append(f"### {model}, {family}, cache {cache} (n = {rows[0]['n']})\n\n{_table(shown)}")
    return "\n\n".join(parts) + "\n"


def mean_table(lines: Iterable[Line], speed: bool = True) -> str:
    """Return Markdown: each decoder's mean over the families, per model and cache, with or without tok/s."""
    parts = []
    for (model, cache), rows in sorted(mean_lines(lines).items()):
        title = f"### {model}, cache {cache}, mean over {rows[0]['families']} families"
        parts.append(f"{title}\n\n{_table(rows, () if speed else SPEED)}")
    return "\n\n".join(parts) + "\n"


def mean_lines(lines: Iterable[Line], every: bool = False) -> dict[tuple[str, str], list[Line]]:
    """Average over the families, per model and cache: each decoder's best of its sweep, or every setting.

    Whatever lacks a family that others have is left out, for its mean would be one over easier items.
    """
    found: dict[tuple[str, str], dict[str, list[Line]]] = {}
    for (model, cache, _), rows in group_lines(lines).items():
        for line in rows if every else best_of_sweeps(rows):
            name = line["setting"] if every else line["method"]
            found.setdefault((model, cache), {}).setdefault(name, []).append(line)
    means = {}
    for key, groups in found.items():
        full = max(len(rows) for rows in groups.values())
        averaged = [_average(rows) for rows in groups.values() if len(rows) == full]
        means[key] = sorted(averaged, key=_place)
    return means


def paired_table(lines: Iterable[Line], method: str = "rps") -> str:
    """Return Markdown: one decoder against each other on the same items, by family and over all of them.

    Lines must hold one setting per decoder. The interval is of the difference between paired shares.
    """
    groups: dict[tuple[str, str], dict[str, dict[str, Line]]] = {}
    for (model, cache, family), rows in group_lines(lines).items():
        for line in rows:
            groups.setdefault((model, cache), {}).setdefault(line["method"], {})[family] = line
    head = ("model", "cache", "against", "family", "difference", "95 %", "only it", "only other", "p", "NFE")
    out = [f"| {' | '.join(head)} |", "| --- | --- | --- | --- |" + " ---: |" * 6]
    for (model, cache), methods in sorted(groups.items()):
        ours = methods.pop(method, {})
        for name, theirs in methods.items():
            shared = [family for family in ours if family in theirs]
            pairs = [_pair(ours[family], theirs[family]) for family in shared]
            if len(shared) > 1:
                pairs.append(tuple(sum(column) for column in zip(*pairs, strict=True)))
            for family, pair in zip([*shared, "all"], pairs, strict=False):
                out.append(f"| {model} | {cache} | {name} | {family} | {_compared(*pair)} |")
    return "\n".join(out) + "\n"


def cache_table(lines: Iterable[Line]) -> str:
    """Return Markdown: what a cache does to each decoder's accuracy on the same items, in points.

    Caches are compared with none, or with the first by name where all lines have one.
    """
    groups: dict[tuple[str, str], dict[str, dict[str, Line]]] = {}
    for (model, cache, family), rows in group_lines(lines).items():
        for line in rows:
            groups.setdefault((model, line["setting"]), {}).setdefault(cache, {})[family] = line
    families = sorted({family for caches in groups.values() for one in caches.values() for family in one})
    head = ("model", "cache", "against", "decoder", *families, "all")
    out = [f"| {' | '.join(head)} |", "| --- | --- | --- | --- |" + " ---: |" * (len(families) + 1)]
    for (model, setting), caches in sorted(groups.items()):
        base = "none" if "none" in caches else min(caches)
        for cache in sorted(caches.keys() - {base}):
            pairs = {
                family: _pair(caches[cache][family], line)
                for family, line in caches[base].items()
                if family in caches[cache]
            }
            if not pairs:
                continue
            pairs["all"] = tuple(sum(column) for column in zip(*pairs.values(), strict=True))
            cells = [
                _with_half_width(*pairs[name][:3]) if name in pairs else "" for name in (*families, "all")
            ]
            out.append(f"| {model} | {cache} | {base} | {setting} | {' | '.join(cells)} |")
    return "\n".join(out) + "\n"


def search_table(lines: Iterable[Line]) -> str:
    """Return Markdown: what the searches of RPS did, for every line that was traced."""
    head = ("model", "cache", "family", "setting", "normal", "lookahead", "searches", "candidates",
            "committed", "not top-1")  # fmt: skip
    out = [f"| {' | '.join(head)} |", "| --- | --- | --- | --- |" + " ---: |" * 6]
    for (model, cache, family), rows in sorted(group_lines(lines).items()):
        for row in rows:
            if facts := row.get("search"):
                searches, candidates, committed, other = (facts[name] for name in SEARCH)
                numbers = f"{row['nfe_normal']:.2f} | {row['nfe_lookahead']:.2f} | {searches:.2f}"
                shares = f"{candidates:.2f} | {100 * committed:.1f} % | {100 * other:.1f} %"
                out.append(f"| {model} | {cache} | {family} | {row['setting']} | {numbers} | {shares} |")
    return "\n".join(out) + "\n"


def _pair(ours: Line, theirs: Line) -> tuple[float, ...]:
    """Return items, solved by ours alone, by theirs alone, and each one's forwards over all items."""
    n = ours["n"]
    if theirs["n"] != n:
        return 0, 0, 0, 0, 0
    a, b = int(ours["right"], 16), int(theirs["right"], 16)
    return n, (a & ~b).bit_count(), (b & ~a).bit_count(), n * ours["nfe"], n * theirs["nfe"]


def _compared(n: float, only_ours: float, only_theirs: float, nfe: float, nfe_theirs: float) -> str:
    difference, half = _difference(n, only_ours, only_theirs)
    low, high = 100 * (difference - half), 100 * (difference + half)
    p = mcnemar(int(only_ours), int(only_theirs))
    shown = f"{p:.3f}" if p >= 0.001 else "< 0.001"
    counts = f"{only_ours:.0f} | {only_theirs:.0f}"
    forwards = f"{nfe / max(n, 1):.1f} : {nfe_theirs / max(n, 1):.1f}"
    return f"{100 * difference:+.1f} | {low:+.1f} to {high:+.1f} | {counts} | {shown} | {forwards}"


def _difference(n: float, only_ours: float, only_theirs: float) -> tuple[float, float]:
    """Return the difference between two paired shares and half the width of its 95 % interval."""
    n = max(n, 1)
    difference = (only_ours - only_theirs) / n
    return difference, Z_95 * math.sqrt(max(0.0, (only_ours + only_theirs) / n - difference**2) / n)


def _with_half_width(n: float, only_ours: float, only_theirs: float) -> str:
    difference, half = _difference(n, only_ours, only_theirs)
    return f"{100 * difference:+.1f} ± {100 * half:.1f}"


def _place(line: Line) -> tuple[int, str]:
    """Order decoders as the paper's table does, settings of one by name."""
    method = line["method"]
    return (ORDER.index(method) if method in ORDER else len(ORDER)), line["setting"]


def _average(rows: Sequence[Line]) -> Line:
    mean = {name: sum(row[name] for row in rows) / len(rows) for name in ("accuracy", "nfe", "rows", "tps")}
    variance = sum(row["accuracy"] * (1 - row["accuracy"]) / row["n"] for row in rows) / len(rows) ** 2
    half = Z_95 * math.sqrt(variance)  # families are drawn apart, so their variances add
    interval = (max(0.0, mean["accuracy"] - half), min(1.0, mean["accuracy"] + half))
    names = {row["setting"] for row in rows}
    method = rows[0]["method"]
    setting = names.pop() if len(names) == 1 else f"{method}, best of sweep"
    return {"method": method, "setting": setting, "families": len(rows), "interval": interval, **mean}


def _table(rows: Sequence[Line], hidden: Collection[str] = ()) -> str:
    base = next((row for row in rows if row["method"] == "default"), None)
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
            "NFE ×": "" if base is None else f"{base['nfe'] / row['nfe']:.2f}",
            "rows": f"{row['rows']:.1f}",
            "tok/s": _bold(f"{row['tps']:.0f}", row["tps"] == fastest),
            "tok/s ×": "" if base is None else f"{row['tps'] / base['tps']:.2f}",
        }
        out.append(f"| {' | '.join(cells[name] for name in columns)} |")
    return "\n".join(out)


def _bold(text: str, is_best: bool) -> str:
    return f"**{text}**" if is_best else text
