"""fp8 beside the usual dtype as tables: the KL of logits, and answers compared item by item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ripple.analysis.statistics import paired, pooled, unpack_bits
from ripple.files import Line

LOGITS = ("model", "task", "rows", "KL, nats: mean", "largest", "same best token")
ANSWERS = ("model", "decoder", "cache", "items", "accuracy", "fp8", "difference, points", "p", "NFE", "fp8",
           "difference, %")  # fmt: skip
SETTING = ("model", "setting", "cache", "length")


def fp8_page(name: str, lines: Sequence[Line], usual: Sequence[Line] = (), fp8: Sequence[Line] = ()) -> str:
    """Return both tables as one Markdown page; without answers in both dtypes there is one."""
    by = sorted({(str(line["dtype"]), str(line["fp8_by"])) for line in lines})
    told = "; ".join(f"{dtype} beside fp8 by the {how}" for dtype, how in by)
    rows = [
        [
            line["model"], line["task"], f"{line['rows']:,}", f"{line['kl_mean']:.1e}",
            f"{line['kl_max']:.2f}", f"{100 * line['same_best']:.1f} %",
        ]
        for line in lines
    ]  # fmt: skip
    parts = [f"# fp8 beside the usual dtype\n\nDrawn from `{name}`: {told}.", _table(LOGITS, rows, 2)]
    answers = list(_answer_rows(usual, fp8))
    if answers:
        parts += [
            "Answers, item by item, pooled over the tasks; differences with their 95 % intervals.",
            _table(ANSWERS, answers, 3),
        ]
    return "\n\n".join(parts) + "\n"


def _answer_rows(usual: Sequence[Line], fp8: Sequence[Line]) -> list[list[str]]:
    """Return a row for each setting that both files have on the same items."""
    other = {_key(line): line for line in usual if line["kind"] == "summary"}
    groups: dict[tuple[Any, ...], list[tuple[Line, Line]]] = {}
    for line in fp8:
        if line["kind"] == "summary" and _key(line) in other:
            groups.setdefault(tuple(line[key] for key in SETTING), []).append((other[_key(line)], line))
    return [_answer_row(place, group) for place, group in groups.items()]


def _answer_row(place: tuple[Any, ...], group: Sequence[tuple[Line, Line]]) -> list[str]:
    both = pooled(
        paired(*(unpack_bits(line["right"], line["n"]) for line in (before, after)))
        for before, after in group
    )
    share, nfe = (
        [sum(pair[side][name] * pair[side]["n"] for pair in group) / both.n for side in (0, 1)]
        for name in ("accuracy", "nfe")
    )
    return [
        *map(str, place[:3]), f"{both.n:,}", f"{100 * share[0]:.1f}", f"{100 * share[1]:.1f}",
        f"{100 * both.difference:+.2f} ± {100 * both.half_width:.2f}", f"{both.p:.2f}",
        f"{nfe[0]:.2f}", f"{nfe[1]:.2f}", f"{100 * (nfe[1] / nfe[0] - 1):+.1f}",
    ]  # fmt: skip


def _key(line: Line) -> tuple[Any, ...]:
    return (*(line[key] for key in SETTING), line["task"], line["chat"], line["n"], line["weights"])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], n_names: int) -> str:
    line = "|" + " --- |" * n_names + " ---: |" * (len(head) - n_names)
    return "\n".join([f"| {' | '.join(head)} |", line, *(f"| {' | '.join(row)} |" for row in rows)])
