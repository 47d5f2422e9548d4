"""Result lines of what measures speed (`ripple bench step`, `replay`, `serve`, ...) as tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ripple.analysis.plots import load_pyplot, save
from ripple.files import Line

CACHES = ("none", "prefix", "dual", "exact")
COLOURS = ("tab:red", "tab:orange", "tab:blue", "tab:green")
REPLAYED = ("rps", "dual"), ("rps", "dual:keep_prompt=true")  # what recorded schedules are compared with


def step_tables(lines: Sequence[Line]) -> str:
    """Return one Markdown table per model shape, dtype, prompt length and batch."""
    parts = []
    for place in _in_order(lines, lambda x: (x["shape"], x["dtype"], x["prompt"], x["batch"])):
        here = [x for x in lines if (x["shape"], x["dtype"], x["prompt"], x["batch"]) == place]
        shape, dtype, prompt, batch = place
        plain = {_where(x): x["step_ms"] for x in here if x["candidates"] == 0}
        rows = [
            "| cache | candidates | rows | step ms | over 0 candidates | roof ms | share of roof | host ms | "
            "memory GB |",
            "| --- " + "| ---: " * 8 + "|",
        ]
        for x in sorted(here, key=lambda x: (CACHES.index(x["cache"]), _where(x), x["candidates"])):
            over = f"{100 * (x['step_ms'] / plain[_where(x)] - 1):+.0f} %" if _where(x) in plain else ""
            memory = f"{x['memory_beside_weights_gb']:.2f}" if "memory_beside_weights_gb" in x else ""
            rows.append(
                f"| {_where(x)} | {x['candidates']} | {x['rows']} | {x['step_ms']:.2f} | {over} | "
                f"{x['roof_ms']:.2f} | {100 * x['share_of_roof']:.0f} % | {x['overhead_ms']:.2f} | "
                f"{memory} |"
            )
        n_response = max(x["positions"] for x in here) - prompt
        title = f"### {_named(shape, dtype)}, prompt {prompt} + response {n_response}, batch {batch}"
        parts.append("\n".join([title, "", *rows, ""]))
    return "\n".join(parts)


def _where(line: Line) -> str:
    """Return a step's cache, and which forward it is where that is not a step in the caller's thread."""
    forward, host = line.get("forward", "step"), line.get("host", "caller")
    return ", ".join(
        [
            line["cache"],
            *([forward] if forward != "step" else []),
            *(["in a thread"] if host != "caller" else []),
        ]
    )


def _named(shape: object, dtype: object) -> str:
    return str(shape) if dtype == "bf16" else f"{shape}, {dtype}"


def replay_tables(lines: Sequence[Line]) -> str:
    """Return one table per model shape, dtype and task: tokens per second, and times over default."""
    parts = [_recorded_tables([x for x in lines if "answers" in x])]
    lines = [x for x in lines if "answers" not in x]
    for shape, dtype, task in _in_order(lines, lambda x: (x["shape"], x["dtype"], x["task"])):
        here = [x for x in lines if (x["shape"], x["dtype"], x["task"]) == (shape, dtype, task)]
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
        title = f"### {_named(shape, dtype)}, {task}, prompt {here[0]['prompt']}"
        parts.append("\n".join([title, "", *rows, ""]))
    return "\n".join(part for part in parts if part)


def _recorded_tables(lines: Sequence[Line]) -> str:
    """Return one table per model shape, dtype and recording: each decoder under its cache, over RPS."""
    parts = []
    for shape, dtype, task in _in_order(lines, lambda x: (x["shape"], x["dtype"], x["task"])):
        here = [x for x in lines if (x["shape"], x["dtype"], x["task"]) == (shape, dtype, task)]
        speed = {(x["method"], x["cache"]): x["tps"] for x in here}
        over = [base for base in REPLAYED if base in speed]
        head = ["decoder", "cache", "NFE", "canvases", "ms per answer", "tok/s"]
        head += [f"× {method} {cache}" for method, cache in over]
        rows = [f"| {' | '.join(head)} |", "| --- | --- |" + " ---: |" * (len(head) - 2)]
        for x in here:
            cells = [
                x["method"], x["cache"], f"{x['nfe']:.1f}", f"{x['canvases']:.1f}",
                f"{1e3 * x['seconds']:.1f}", f"{x['tps']:.0f}",
                *(f"{x['tps'] / speed[base]:.2f}" for base in over),
            ]  # fmt: skip
            rows.append(f"| {' | '.join(cells)} |")
        title = f"### {_named(shape, dtype)}, recorded on {task}, prompt {here[0]['prompt']}"
        count = f"{here[0]['answers']} answers of 256 positions, end fill on; from `{here[0]['schedules']}`."
        parts.append("\n".join([title, "", count, "", *rows, ""]))
    return "\n".join(parts)


def throughput_tables(lines: Sequence[Line]) -> str:
    """Return one Markdown table per model shape and cache: tokens per second of all requests together."""
    parts = []
    for place in _in_order(lines, _throughput_place):
        here = [x for x in lines if _throughput_place(x) == place]
        shape, dtype, task, cache = place
        line_of = {(x["concurrent"], x["method"]): x for x in here}
        methods = [method for (method,) in _in_order(here, lambda x: (x["method"],))]
        head = "| requests at a time | " + " | ".join(f"{m}: tok/s | seconds each" for m in methods) + " |"
        rows = [head, "| ---: " + "| ---: | ---: " * len(methods) + "|"]
        for n in sorted({x["concurrent"] for x in here}):
            at = [line_of.get((n, method)) for method in methods]
            cells = [f"{x['tps']:.0f} | {x['latency_s']:.2f}" if x else "|" for x in at]
            rows.append(f"| {n} | " + " | ".join(cells) + " |")
        recorded = "" if task == "gsm8k" else f", recorded on {task}"
        title = f"### {_named(shape, dtype)}{recorded}, cache {cache}"
        parts.append("\n".join([title, "", *rows, ""]))
    return "\n".join(parts)


def _throughput_place(line: Line) -> tuple[object, ...]:
    return line["shape"], line["dtype"], line.get("task", "gsm8k"), line["cache"]


def concurrency_tables(lines: Sequence[Line]) -> str:
    """Return one Markdown table per model, task and cache: tokens per second over confidence's at that load.

    Both by the clock of the machine that decoded and by the step times that the lines were priced with.
    """
    head = ("requests", "decoder", "budget", "Acc", "NFE", "canvases", "rows per tick", "tok/s", "×",
            "priced tok/s", "×")  # fmt: skip
    parts = []
    for model, task, cache, n in _in_order(lines, lambda x: (x["model"], x["task"], x["cache"], x["n"])):
        here = [x for x in lines if (x["model"], x["task"], x["cache"], x["n"]) == (model, task, cache, n)]
        bases = {x["at_once"]: x for x in here if x["decoder"] == "confidence"}
        rows = [f"| {' | '.join(head)} |", "| ---: | --- |" + " ---: |" * (len(head) - 2)]
        for x in sorted(here, key=lambda x: x["at_once"]):
            base = bases.get(x["at_once"], {})
            cells = [
                str(x["at_once"]), x["decoder"], "" if x["budget"] is None else f"{x['budget']:g}",
                f"{100 * x['accuracy']:.1f}", f"{x['nfe']:.1f}", f"{x['canvases']:.1f}",
                f"{x['rows'] / x['ticks']:.0f}", f"{x['tps']:.0f}", _times(x["tps"], base.get("tps")),
                "" if x["priced_tps"] is None else f"{x['priced_tps']:.0f}",
                _times(x["priced_tps"], base.get("priced_tps")),
            ]  # fmt: skip
            rows.append(f"| {' | '.join(cells)} |")
        prices = next((f"Priced with `{x['curve']}`.\n" for x in here if x["curve"]), "")
        parts.append("\n".join([f"### {model}, {task}, cache {cache} (n = {n})", "", prices, *rows, ""]))
    return "\n".join(parts)


def serve_tables(lines: Sequence[Line]) -> str:
    """Return one Markdown table per model and way to decode, for whole answers and for streams."""
    head = ("clients", "requests/s", "tok/s", "engine's tok/s", "share", "by processor time", "first text ms",
            "latency ms")  # fmt: skip
    parts = []
    for key in _in_order(lines, lambda x: tuple(x[name] for name in _SERVED)):
        here = [x for x in lines if tuple(x[name] for name in _SERVED) == key]
        model, decoder, cache, length, stream = key
        rows = [f"| {' | '.join(head)} |", "|" + " ---: |" * len(head)]
        for x in sorted(here, key=lambda x: x["clients"]):
            cells = [
                str(x["clients"]), f"{x['rps']:.2f}", f"{x['tps']:.0f}", f"{x['engine_tps']:.0f}",
                f"{x['ratio']:.2f}", f"{x['cpu_ratio']:.2f}", _percentiles(x["first_text_ms"]),
                _percentiles(x["latency_ms"]),
            ]  # fmt: skip
            rows.append(f"| {' | '.join(cells)} |")
        what = "streams" if stream else "whole answers"
        title = f"### {model}, {decoder}, cache {cache}, {length} positions in the mean, {what}"
        parts.append("\n".join([title, "", *rows, ""]))
    return "\n".join(parts)


_SERVED = ("model", "decoder", "cache", "length", "stream")


def _percentiles(ms: dict[str, float] | None) -> str:
    return "" if ms is None else " / ".join(f"{value:.0f}" for value in ms.values())


def _times(ours: float | None, theirs: float | None) -> str:
    return f"{ours / theirs:.2f}" if ours and theirs else ""


def step_figure(lines: Sequence[Line], path: Path) -> None:
    """Draw step time against the number of candidates, with its roof, one panel per model shape."""
    load_pyplot()
    from matplotlib.figure import Figure

    shapes = [shape for (shape,) in _in_order(lines, lambda x: (x["shape"],))]
    figure = Figure(figsize=(5.2 * len(shapes), 4), layout="constrained")
    panels = figure.subplots(1, len(shapes), squeeze=False)[0]
    for panel, shape in zip(panels, shapes, strict=True):
        own = [x for x in lines if x["shape"] == shape and x["batch"] == 1 and _is_plain(x)]
        if not own:
            continue
        prompt = own[0]["prompt"]
        for colour, cache in zip(COLOURS, CACHES, strict=True):
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


def _is_plain(line: Line) -> bool:
    """Whether a line is of a bf16 step in the caller's thread, as the figure shows them."""
    return bool(line["dtype"] == "bf16") and _where(line) == line["cache"]


def _in_order(lines: Sequence[Line], key: Callable[[Line], tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return the distinct keys in the order in which they first appear."""
    return list(dict.fromkeys(key(line) for line in lines))
