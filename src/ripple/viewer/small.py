"""The small viewer of a notebook: static HTML without a script, which fits dark and light pages."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence

from ripple.trace import Event
from ripple.view import END, Choice, Frame, frames, is_special, visible

COLOURS = {  # cause of a commit -> its colour, readable on dark and on light
    "standard": "#14a47c", "fallback": "#c98c0c", "pivot": "#d4489f", "branch": "#2f93d1",
    "forced": "#5b78e0", "next_token": "#5b78e0", "edit": "#0e8f9e", "end": "#8a8a86", "revoked": "#e0602f",
}  # fmt: skip
_OTHER = "#808080"
_MOST_ROWS = 200  # forwards that are listed
_ROOM = 40  # px, height of the chart's bars


def small_html(
    pieces: Sequence[str | None], causes: Sequence[str | None], counts: str, trace: Sequence[Event] | None
) -> str:
    """Return a response with each token in the colour of its cause; with a trace, forward by forward, too.

    A piece is the text of a position, None where it is masked.
    """
    cells = "".join(_cell(piece, cause) for piece, cause in zip(pieces, causes, strict=True))
    used = Counter(cause for cause in causes if cause is not None)
    legend = " ".join(
        f'<span style="{_style(cause)}">{html.escape(cause)} {n}</span>' for cause, n in used.items()
    )
    states = frames(trace) if trace else []
    told = f"{_chart(states)}{_table(states)}" if states else ""
    return (
        '<div style="max-width:60em"><pre style="margin:0;background:none;color:inherit;line-height:1.8;'
        f'white-space:pre-wrap;overflow-wrap:anywhere">{cells}</pre>'
        f'<div style="font-size:smaller;opacity:.85">{html.escape(counts)} · {legend}</div>{told}</div>'
    )


def _cell(piece: str | None, cause: str | None) -> str:
    if piece is None:
        return f'<span style="color:{_OTHER}" title="masked">▒</span>'
    shown = END if is_special(piece) else html.escape(piece)
    return f'<span style="{_style(cause)}" title="{html.escape(cause or "")}">{shown}</span>'


def _style(cause: str | None) -> str:
    colour = COLOURS.get(cause or "", _OTHER)
    bold = ";font-weight:bold" if cause in ("pivot", "branch") else ""
    return f"background:{colour}2e;border-bottom:2px solid {colour}{bold}"


def _chart(states: Sequence[Frame]) -> str:
    """Draw a bar per forward: how many tokens it committed, by cause."""
    counts = [
        Counter(cell.cause for cell in state.cells if cell.fresh and cell.token is not None)
        for state in states
    ]
    most, width = max(max(map(Counter.total, counts)), 1), max(2, min(12, 600 // len(states)))
    bars = []
    for i, (state, count) in enumerate(zip(states, counts, strict=True)):
        bottom = float(_ROOM)
        for cause, n in count.items():
            height = _ROOM * n / most
            bottom -= height
            title = f"<title>forward {state.nfe}: {n} {html.escape(str(cause))}</title>"
            bars.append(
                f'<rect x="{i * width}" y="{bottom:.1f}" width="{width - 1}" height="{height:.1f}" '
                f'fill="{COLOURS.get(cause or "", _OTHER)}">{title}</rect>'
            )
    label = "tokens committed per forward"
    return (
        f'<svg role="img" aria-label="{label}" width="{width * len(states)}" height="{_ROOM}" '
        f'style="display:block;margin:.6em 0 .2em">{"".join(bars)}</svg>'
    )


def _table(states: Sequence[Frame]) -> str:
    rows = []
    for state in states[:_MOST_ROWS]:
        fresh = sum(cell.fresh and cell.token is not None for cell in state.cells)
        entropy = "" if state.mean_entropy is None else f"{state.mean_entropy:.2f}"
        choice = _told(state.choice) if state.choice is not None and state.choice.nfe == state.nfe else ""
        columns = (
            str(state.nfe),
            state.kind,
            f"{1000 * state.t:.0f}",
            str(fresh),
            str(state.n_masked),
            entropy,
        )
        cells = "".join(f"<td>{one}</td>" for one in columns)
        rows.append(f'<tr>{cells}<td style="text-align:left">{choice}</td></tr>')
    heads = ("forward", "kind", "ms", "committed", "masked", "mean entropy", "candidates, with their scores")
    more = f"<p>{len(states) - _MOST_ROWS} more forwards</p>" if len(states) > _MOST_ROWS else ""
    head = "".join(f"<th>{one}</th>" for one in heads)
    return (
        '<details><summary style="cursor:pointer;font-size:smaller">forward by forward</summary>'
        f'<table style="font-size:smaller;color:inherit"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>{more}</details>"
    )


def _told(choice: Choice) -> str:
    """Tell the candidates of a choice in one line, the chosen one in bold."""
    parts = []
    for one in choice.candidates:
        score = "" if one.score is None else f" {one.score:.2f}"
        text = html.escape(f"{visible(one.piece)}{score}")
        parts.append(f'<b style="{_style("pivot")}">{text}</b>' if one.is_chosen else text)
    where = "" if choice.pos is None else f"at {choice.pos}: "
    return where + " · ".join(parts)
