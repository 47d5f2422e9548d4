"""A trace forward by forward, and how each state looks in a terminal.

`frames` turns events into states of the response; the `draw_*` functions turn those into rich renderables
and are the only ones that need rich. `ripple view` replays them.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ripple.trace import Event

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

CAUSES = {  # cause of a commit -> its colour
    "standard": "green",
    "fallback": "yellow",
    "pivot": "magenta",
    "branch": "cyan",
    "forced": "blue",
    "next_token": "blue",
    "edit": "cyan",
    "end": "bright_black",
    "revoked": "red",
}
MASK, MASK_AHEAD = "▒", "░"  # in the block being decoded, and beyond it
END = "∎"  # stands for an end token and the like
_SPECIAL = re.compile(r"<\|\w+\|>")  # end tokens and the like, which fill the rest of a canvas
_SIGNS = {"\n": "⏎", "\r": "␍", "\t": "⇥", "\x1b": "␛"}

PieceOf = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Cell:
    """One response position: masked, or a token and why it was committed."""

    token: int | None = None  # None: masked
    piece: str = ""
    cause: str | None = None  # a masked cell may be "revoked"
    fresh: bool = False  # changed after this frame's forward


@dataclass(frozen=True, slots=True)
class Candidate:
    """One candidate of a lookahead; what its decoder does not report is None."""

    piece: str
    p: float | None
    p_anchor: float | None
    mean_entropy: float | None
    score: float | None  # None: minus infinity
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """One lookahead search: RPS's tokens for a pivot, or LoPA's branches."""

    kind: str  # "search" | "branches"
    nfe: int  # the forward that answered it
    pos: int | None  # the pivot, in the response
    candidates: tuple[Candidate, ...]  # staying masked first


@dataclass(frozen=True, slots=True)
class Frame:
    """The response after one forward and the decisions that followed it."""

    nfe: int
    kind: str  # "normal" | "lookahead"
    canvases: int
    t: float  # seconds since admission, at the last decision
    window: tuple[int, int]  # in the response
    mean_entropy: float | None  # over the masked positions that the forward read, nats
    cells: tuple[Cell, ...]
    choice: Choice | None  # the latest one

    @property
    def n_masked(self) -> int:
        """Positions without a token."""
        return sum(cell.token is None for cell in self.cells)


class Playback:
    """Follows the events of one request; `frame` is the state they have led to."""

    def __init__(self, start: Event, piece: PieceOf) -> None:
        self.n_prompt = len(start.data["prompt"])
        self._piece = piece
        self._now = Frame(0, "normal", 0, start.t, (0, 0), None, (Cell(),) * start.data["length"], None)

    def frame(self) -> Frame:
        """Return the state after the events so far."""
        return self._now

    def feed(self, event: Event) -> None:
        """Take in the next event."""
        take = getattr(self, f"_on_{event.kind}", None)
        if take is not None:
            take(event.data)
            self._now = replace(self._now, t=event.t)

    def _shown(self, token: int) -> str:
        return self._piece(token) or f"<{token}>"

    def _on_forward(self, data: dict[str, Any]) -> None:
        entropy = data["entropy"]
        self._now = replace(
            self._now,
            nfe=data["nfe"],
            kind=data["kind"],
            canvases=data["canvases"],
            window=(data["window"][0] - self.n_prompt, data["window"][1] - self.n_prompt),
            mean_entropy=sum(entropy) / len(entropy) if entropy else None,
            cells=tuple(replace(c, fresh=False) if c.fresh else c for c in self._now.cells),
        )

    def _on_commit(self, data: dict[str, Any]) -> None:
        cells = list(self._now.cells)
        for pos, token in zip(data["pos"], data["token"], strict=True):
            cells[pos - self.n_prompt] = Cell(token, self._shown(token), data["cause"], True)
        self._now = replace(self._now, cells=tuple(cells))

    def _on_revoke(self, data: dict[str, Any]) -> None:
        cells = list(self._now.cells)
        for pos in data["pos"]:
            cells[pos - self.n_prompt] = Cell(cause="revoked", fresh=True)
        self._now = replace(self._now, cells=tuple(cells))

    def _on_search(self, data: dict[str, Any]) -> None:
        chosen = -1 if data["chosen"] is None else data["chosen"]
        pieces = ["[MASK]", *(self._shown(token) for token in data["token"])]
        columns = zip(
            pieces,
            [None, *data["p"]],
            [data["p_anchor_max"], *data["p_anchor"]],
            data["mean_entropy"],
            data["score"],
            strict=True,
        )
        candidates = tuple(Candidate(*column, is_chosen=i - 1 == chosen) for i, column in enumerate(columns))
        self._choose(Choice("search", self._now.nfe, data["pivot"] - self.n_prompt, candidates))

    def _on_branches(self, data: dict[str, Any]) -> None:
        candidates = [Candidate("no branch", None, None, None, data["score_base"], data["chosen"] is None)]
        for i, (pos, token) in enumerate(zip(data["pos"], data["token"], strict=True)):
            piece = f"{pos - self.n_prompt}: {self._shown(token)}"
            candidates.append(Candidate(piece, None, None, None, data["score"][i], i == data["chosen"]))
        self._choose(Choice("branches", self._now.nfe, None, tuple(candidates)))

    def _choose(self, choice: Choice) -> None:
        self._now = replace(self._now, choice=choice)


def frames(events: Sequence[Event]) -> list[Frame]:
    """Return the state of the response after each forward of a trace."""
    pieces: dict[str, str] = next(
        (event.data["pieces"] for event in reversed(events) if event.kind == "end"), {}
    )
    playback = Playback(events[0], lambda token: pieces.get(str(token), f"<{token}>"))
    states: list[Frame] = []
    for event in events[1:]:
        if event.kind == "forward" and playback.frame().nfe:
            states.append(playback.frame())
        playback.feed(event)
    return [*states, playback.frame()] if playback.frame().nfe else states


def summary(events: Sequence[Event]) -> dict[str, Any]:
    """Return what a trace adds up to: counts of forwards, and of commits by cause with their mean p."""
    start, kinds = events[0].data, Counter(e.data["kind"] for e in events if e.kind == "forward")
    n_by_cause, p_by_cause = Counter[str](), Counter[str]()
    for event in events:
        if event.kind == "commit":
            n_by_cause[event.data["cause"]] += len(event.data["pos"])
            p_by_cause[event.data["cause"]] += sum(event.data["p"])
    end = next((event.data for event in events if event.kind == "end"), {})
    return {
        "decoder": start["decoder"],
        "fields": start["fields"],
        "length": start["length"],
        "nfe": kinds.total(),
        "nfe_normal": kinds["normal"],
        "nfe_lookahead": kinds["lookahead"],
        "commits": dict(n_by_cause),
        "mean_p": {cause: p_by_cause[cause] / n for cause, n in n_by_cause.items() if n},
        "revoked": sum(len(event.data["pos"]) for event in events if event.kind == "revoke"),
        "seconds": end.get("seconds"),
        "finish": end.get("finish"),
        "text": end.get("text"),
    }


def is_special(piece: str) -> bool:
    """Whether a piece is an end token or the like, which fill the rest of a canvas."""
    return _SPECIAL.fullmatch(piece) is not None


def visible(text: str, keep: str = "") -> str:
    """Return text that no terminal obeys: control characters become signs, except those in `keep`."""
    return "".join(c if c in keep or unicodedata.category(c)[0] != "C" else _SIGNS.get(c, "·") for c in text)


# -- drawing, with rich ---------------------------------------------------------------------------------


def draw_cells(frame: Frame) -> Text:
    """Draw the response, each token in the colour of its cause, fresh ones inverted."""
    from rich.text import Text

    text = Text(overflow="fold")
    start, stop = frame.window
    for i, cell in enumerate(frame.cells):
        colour = CAUSES.get(cell.cause or "", "white")
        fresh = " bold reverse" if cell.fresh else ""
        if cell.token is None:
            sign = MASK if start <= i < stop else MASK_AHEAD
            text.append(sign, colour + fresh if cell.cause else "bright_black")
        else:
            text.append(END if is_special(cell.piece) else visible(cell.piece), colour + fresh)
    return text


def draw_header(frame: Frame, n_forwards: int | None = None) -> Text:
    """Draw the line of numbers above a frame."""
    from rich.text import Text

    of = f" of {n_forwards}" if n_forwards else ""
    parts = [
        f"NFE {frame.nfe}{of}",
        f"{frame.kind} forward, {frame.canvases} canvas{'es' if frame.canvases > 1 else ''}",
        f"{frame.n_masked} of {len(frame.cells)} masked",
    ]
    if frame.mean_entropy is not None:
        parts.append(f"mean entropy {frame.mean_entropy:.3f} nats")
    return Text(" · ".join([*parts, f"{frame.t:.3f} s"]), style="bold")


def draw_legend(*shown: Frame) -> Text:
    """Draw the colours and what they stand for; of the causes, those that occur in the frames."""
    from rich.text import Text

    used = {cell.cause for frame in shown for cell in frame.cells}
    parts = [(f"■ {cause}", colour) for cause, colour in CAUSES.items() if cause in used]
    parts += [(f"{MASK} masked", "bright_black"), ("fresh", "bold reverse")]
    return Text("  ").join(Text(label, style) for label, style in parts)


def draw_choice(choice: Choice) -> Table:
    """Draw the candidates of one search as a table, the chosen one marked."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    is_search = choice.kind == "search"
    title = f"pivot at {choice.pos}" if is_search else "branches"
    table = Table(title=f"{title}, forward {choice.nfe}", box=SIMPLE_HEAD, title_justify="left")
    table.add_column("candidate")
    names = ("p", "p_anchor", "mean entropy", "score") if is_search else ("score",)
    for name in names:
        table.add_column(name, justify="right")
    for one in choice.candidates:
        values = (one.p, one.p_anchor, one.mean_entropy, one.score)[-len(names) :]
        numbers = ["" if value is None else f"{value:.3f}" for value in values]
        piece = Text(visible(one.piece) + (" ◀ chosen" if one.is_chosen else ""))
        colour = CAUSES["pivot" if is_search else "branch"]
        table.add_row(piece, *numbers, style=f"bold {colour}" if one.is_chosen else "")
    return table


def draw_frame(frame: Frame, n_forwards: int | None = None) -> RenderableType:
    """Draw one state: header, response, latest search, legend."""
    from rich.console import Group
    from rich.panel import Panel

    parts: list[RenderableType] = [draw_header(frame, n_forwards), Panel(draw_cells(frame))]
    if frame.choice is not None:
        parts.append(draw_choice(frame.choice))
    return Group(*parts, draw_legend(frame))


def draw_summary(totals: dict[str, Any]) -> Table:
    """Draw the commits of a trace by cause."""
    from rich.table import Table
    from rich.text import Text

    name = visible(totals["decoder"])
    title = Text(f"{name}: {totals['nfe']} forwards, {totals['nfe_lookahead']} of them lookahead")
    table = Table(title=title, title_justify="left")
    for name in ("cause", "tokens", "share", "mean p"):
        table.add_column(name, justify="left" if name == "cause" else "right")
    n_all = sum(totals["commits"].values()) or 1
    for cause, n in sorted(totals["commits"].items(), key=lambda item: -item[1]):
        mean_p = totals["mean_p"].get(cause)
        row = (str(n), f"{n / n_all:.0%}", "" if mean_p is None else f"{mean_p:.3f}")
        table.add_row(Text(visible(cause)), *row, style=CAUSES.get(cause, "white"))
    if totals["revoked"]:
        table.add_row("revoked", str(totals["revoked"]), "", "", style=CAUSES["revoked"])
    return table
