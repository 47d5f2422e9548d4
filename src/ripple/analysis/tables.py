"""The decoder table in Markdown, drawn from result lines alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ripple.analysis.lines import Line

COLUMNS = ("decoder", "Acc", "95 %", "NFE", "NFE ×", "rows", "tok/s", "tok/s ×")
SPEED = ("tok/s", "tok/s ×")
Key = tuple[str, str, str]  # model, cache, family


def group_lines(lines: Iterable[Line]) -> dict[Key, list[Line]]:
    """Group result lines by model, cache and family; a later line of the same setting replaces an earlier."""
    groups: dict[Key, dict[str, Line]] = {}
    for line in lines:
        key = (line["model"], line["cache"], line["family"])
        groups.setdefault(key, {})[line["setting"]] = line
    return {key: list(rows.values()) for key, rows in groups.items()}


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
    means: dict[tuple[str, str], dict[str, list[Line]]] = {}
    for (model, cache, _), rows in group_lines(lines).items():
        for line in best_of_sweeps(rows):
            means.setdefault((model, cache), {}).setdefault(line["method"], []).append(line)
    parts = []
    for (model, cache), methods in sorted(means.items()):
        full = max(len(rows) for rows in methods.values())
        averaged = [_average(rows) for rows in methods.values() if len(rows) == full]
        hidden = {"95 %"} if speed else {"95 %", *SPEED}
        title = f"### {model}, cache {cache}, mean over {full} families"
        parts.append(f"{title}\n\n{_table(averaged, hidden)}")
    return "\n\n".join(parts) + "\n"


def _average(rows: list[Line]) -> Line:
    mean = {name: sum(row[name] for row in rows) / len(rows) for name in ("accuracy", "nfe", "rows", "tps")}
    return {"method": rows[0]["method"], "setting": rows[0]["method"], "interval": (0, 0), **mean}


def _table(rows: list[Line], hidden: Collection[str] = ()) -> str:
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
