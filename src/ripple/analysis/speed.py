"""Result lines of `ripple bench step`, `replay` and `throughput` as tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ripple.analysis.lines import Line
from ripple.analysis.plots import save

CACHES = ("none", "prefix", "dual")


def step_tables(lines: Sequence[Line]) -> str:
    """Return one Markdown table per model shape, prompt length and batch."""
    parts = []
    for shape, prompt, batch in _in_order(lines, lambda x: (x["shape"], x["prompt"], x["batch"])):
        here = [x for x in lines if (x["shape"], x["prompt"], x["batch"]) == (shape, prompt, batch)]
        plain = {x["cache"]: x["step_ms"] for x in here if x["candidates"] == 0}
        rows = [
            "| cache | candidates | rows | step ms | over 0 candidates | roof ms | share of roof | host ms | "
            "memory GB |",
            "| --- " + "| ---: " * 8 + "|",
        ]
        for x in sorted(here, key=lambda x: (CACHES.index(x["cache"]), x["candidates"])):
            over = f"{100 * (x['step_ms'] / plain[x['cache']] - 1):+.0f} %" if x["cache"] in plain else ""
            memory = f"{x['memory_beside_weights_gb']:.2f}" if "memory_beside_weights_gb" in x else ""
            rows.append(
                f"| {x['cache']} | {x['candidates']} | {x['rows']} | {x['step_ms']:.2f} | {over} | "
                f"{x['roof_ms']:.2f} | {100 * x['share_of_roof']:.0f} % | {x['overhead_ms']:.2f} | "
                f"{memory} |"
            )
        title = f"### {shape}, prompt {prompt} + response {here[0]['positions'] - prompt}, batch {batch}"
        parts.append("\n".join([title, "", *rows, ""]))
    return "\n".join(parts)


def replay_tables(lines: Sequence[Line]) -> str:
    """Return one Markdown table per model shape and task: tokens per second, and times over default."""
    parts = []
    for shape, task in _in_order(lines, lambda x: (x["shape"], x["task"])):
        here = [x for x in lines if (x["shape"], x["task"]) == (shape, task)]
        caches = _in_order(here, lambda x: (x["cache"],))
        speed = {(x["method"], x["cache"]): x["tps"] for x in here}
        base = speed.get(("default", "none"))
        head = "| decoder | NFE | " + " | ".join(f"{cache}: tok/s | ×" for (cache,) in caches) + " |"
        rows = [head, "| --- | ---: " + "| ---: | ---: " * len(caches) + "|"]
        for (method,) in _in_order(here, lambda x: (x["method"],)):
            nfe = next(x["nfe"] for x in here if x["method"] == method)
            cells = []
            for (cache,) in caches:
                tps = speed.get((method, cache))
                cells.append(
                    "|" if tps is None else f"{tps:.0f} | {tps / base:.1f}" if base else f"{tps:.0f} | "
                )
            rows.append(f"| {method} | {nfe:g} | " + " | ".join(cells) + " |")
        parts.append("\n".join([f"### {shape}, {task}, prompt {here[0]['prompt']}", "", *rows, ""]))
    return "\n".join(parts)


def throughput_tables(lines: Sequence[Line]) -> str:
    """Return one Markdown table per model shape and cache: tokens per second of all requests together."""
    parts = []
    for shape, cache in _in_order(lines, lambda x: (x["shape"], x["cache"])):
        here = [x for x in lines if (x["shape"], x["cache"]) == (shape, cache)]
        found = {(x["concurrent"], x["method"]): x for x in here}
        methods = [method for (method,) in _in_order(here, lambda x: (x["method"],))]
        head = "| requests at a time | " + " | ".join(f"{m}: tok/s | seconds each" for m in methods) + " |"
        rows = [head, "| ---: " + "| ---: | ---: " * len(methods) + "|"]
        for n in sorted({x["concurrent"] for x in here}):
            at = [found.get((n, method)) for method in methods]
            cells = [f"{x['tps']:.0f} | {x['latency_s']:.2f}" if x else "|" for x in at]
            rows.append(f"| {n} | " + " | ".join(cells) + " |")
        parts.append("\n".join([f"### {shape}, cache {cache}", "", *rows, ""]))
    return "\n".join(parts)


def step_figure(lines: Sequence[Line], path: Path) -> None:
    """Draw step time against the number of candidates, with its roof, one panel per model shape."""
    from matplotlib.figure import Figure

    shapes = [shape for (shape,) in _in_order(lines, lambda x: (x["shape"],))]
    figure = Figure(figsize=(5.2 * len(shapes), 4), layout="constrained")
    panels = figure.subplots(1, len(shapes), squeeze=False)[0]
    for panel, shape in zip(panels, shapes, strict=True):
        own = [x for x in lines if x["shape"] == shape and x["batch"] == 1]
        prompt = own[0]["prompt"]
        for colour, cache in zip(("tab:red", "tab:orange", "tab:blue"), CACHES, strict=True):
            points = sorted(
                (x["candidates"], x["step_ms"], x["roof_ms"])
                for x in own
                if x["cache"] == cache and x["prompt"] == prompt
            )
            if not points:
                continue
            n, step, roof = zip(*points, strict=True)
            panel.plot(n, step, "o-", color=colour, label=f"cache {cache}")
            panel.plot(n, roof, "--", color=colour, linewidth=1)
        panel.set(yscale="log", xlabel="candidates in the lookahead", ylabel="ms per step", title=shape)
        panel.set_title(f"{shape}, {own[0]['positions']} positions, batch 1 (dashed: roof)", fontsize=10)
        panel.grid(alpha=0.3, which="both")
        panel.legend(fontsize=8)
    save(figure, path)


def _in_order(lines: Sequence[Line], key: Callable[[Line], tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return the distinct keys in the order in which they first appear."""
    return list(dict.fromkeys(key(line) for line in lines))
