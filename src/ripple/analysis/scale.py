"""Result lines of `ripple bench scale` as tables and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ripple.analysis.plots import load_pyplot, save
from ripple.files import Line


def scale_tables(name: str, lines: Sequence[Line]) -> str:
    """Return all tables as one Markdown page."""
    by = {what: [line for line in lines if line["what"] == what] for what in _PARTS}
    first = lines[0]
    head = (
        f"# 1 to 1,000 GPUs\n\nDrawn from `{name}`. {first['shape']} on {first['device']} at "
        f"{first['price']:g} US dollars per GPU hour, which is a round number and no offer. Steps are "
        "measured, all else is computed from them or simulated.\n"
    )
    return "\n".join([head, *(_PARTS[what](by[what]) for what in _PARTS if by[what])])


def _checks(lines: Sequence[Line]) -> str:
    rows = [
        (
            x["method"],
            x["cache"],
            x["batch"],
            f"{x['measured_tps']:.0f}",
            f"{x['tps']:.0f}",
            f"{100 * x['error']:+.0f} %",
        )
        for x in lines
    ]
    return _section(
        "The model beside what was measured",
        "Tokens per second of one GPU, prompt 900 to 1,100, response 256, all requests started together.",
        ("decoder", "cache", "requests at a time", "measured", "model", "error"), rows, 2,
    )  # fmt: skip


def _gpu(lines: Sequence[Line]) -> str:
    parts = []
    for method, cache in dict.fromkeys((x["method"], x["cache"]) for x in lines):
        here = [x for x in lines if (x["method"], x["cache"]) == (method, cache)]
        rows = [
            (
                x["prompt"], x["answer"], x["batch"], f"{x['rps']:.2f}", f"{x['tps']:.0f}",
                f"{x['seconds']:.2f}", f"{x['usd_per_million']:.2f}", x["fit"],
            )
            for x in here
        ]  # fmt: skip
        parts.append(
            _section(
                f"One GPU: {method}, cache {cache}", "",
                ("prompt", "answer", "at a time", "requests/s", "tokens/s", "seconds each",
                 "$ per million tokens", "requests whose keys fit"), rows, 0,
            )
        )  # fmt: skip
    return "\n".join(parts)


def _fleets(lines: Sequence[Line]) -> str:
    x = lines[0]
    about = (
        f"Simulated: {x['method']}, cache {x['cache']}, prompt {x['prompt']}, answer {x['answer']}, Poisson "
        f"arrivals, each to the less busy of two random replicas, at most {x['batch']} at a time."
    )
    has_host = "proxy_cores" in x
    head = ("GPUs", "load", "requests/s", "p50 s", "p99 s", "p99 of waiting s", "$ per million tokens")
    more = ("cores for proxies", "server's share of a core", "network: text", "network: canvas")
    rows = [
        (
            f"{x['gpus']:,}", f"{100 * x['load']:.0f} %", f"{x['rps']:.1f}", f"{x['p50_s']:.1f}",
            f"{x['p99_s']:.1f}", f"{x['wait_p99_s']:.1f}", f"{x['usd_per_million']:.2f}",
            *((f"{x['proxy_cores']:.1f}", f"{100 * x['server_cores_per_gpu']:.1f} %",
               f"{100 * x['text_share']:.3f} %", f"{100 * x['canvas_share']:.2f} %") if has_host else ()),
        )
        for x in lines
    ]  # fmt: skip
    return _section("Many GPUs", about, head + (more if has_host else ()), rows, 0)


def _parallel(lines: Sequence[Line]) -> str:
    rows = [
        (
            x["gpus"], f"{x['weights_gb']:.0f}", "yes" if x["fits"] else "no", f"{x['read_ms']:.2f}",
            f"{x['compute_ms']:.2f}", f"{x['reduce_ms']:.2f}", f"{x['step_ms']:.2f}",
        )
        for x in lines
    ]  # fmt: skip
    return _section(
        "One model on several GPUs: computed, not measured",
        f"A dense model of 72.7 billion parameters in bf16, {lines[0]['rows']} rows on stored keys. Traffic "
        "and arithmetic at the speeds measured on one device, all-reduces at 450 GB/s and 10 µs each.",
        ("GPUs", "weights GB each", "fits", "reading ms", "arithmetic ms", "all-reduce ms", "least step ms"),
        rows, 0,
    )  # fmt: skip


_PARTS = {"check": _checks, "gpu": _gpu, "fleet": _fleets, "parallel": _parallel}


def _section(
    title: str, about: str, head: Sequence[str], rows: Sequence[Sequence[object]], n_left: int
) -> str:
    """Return a headed table whose first columns are text."""
    marks = [" --- " if at < n_left else " ---: " for at in range(len(head))]
    table = [f"| {' | '.join(head)} |", f"|{'|'.join(marks)}|"]
    table += [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([f"## {title}", "", *([about, ""] if about else []), *table, ""])


def scale_figure(lines: Sequence[Line], path: Path) -> None:
    """Draw cost against the answer's length, and latency against load."""
    load_pyplot()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    gpu = [x for x in lines if x["what"] == "gpu"]
    most = max(x["batch"] for x in gpu)
    styles = dict(zip(dict.fromkeys(x["prompt"] for x in gpu), ("o-", "s--", "^:"), strict=False))
    colours = dict(zip(dict.fromkeys((x["method"], x["cache"]) for x in gpu), _COLOURS, strict=False))
    for (method, cache), colour in colours.items():
        for prompt, style in styles.items():
            points = [
                (x["answer"], x["usd_per_million"]) for x in gpu
                if (x["method"], x["cache"], x["prompt"], x["batch"]) == (method, cache, prompt, most)
            ]  # fmt: skip
            if points:
                label = f"{method}, {cache}, prompt {prompt}"
                left.plot(*zip(*points, strict=True), style, color=colour, label=label)
    left.set(xscale="log", yscale="log", xlabel="answer, tokens", ylabel="US dollars per million tokens")
    left.set_title(f"one GPU, {most} requests at a time", fontsize=10)
    fleets = [x for x in lines if x["what"] == "fleet"]
    for gpus, colour in zip(dict.fromkeys(x["gpus"] for x in fleets), _COLOURS, strict=False):
        here = [x for x in fleets if x["gpus"] == gpus]
        loads = [100 * x["load"] for x in here]
        right.plot(loads, [x["p50_s"] for x in here], "o-", color=colour, label=f"{gpus:,} GPUs, median")
        right.plot(loads, [x["p99_s"] for x in here], "o--", color=colour, linewidth=1)
    right.set(xlabel="load, % of what the GPUs can do", ylabel="seconds (dashed: 99 %)", ylim=(0, None))
    right.set_title("simulated fleets", fontsize=10)
    for panel in (left, right):
        panel.grid(alpha=0.3, which="both")
        panel.legend(fontsize=7)
    save(figure, path)


_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red")
