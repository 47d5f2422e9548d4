"""How LoPA and RPS fail on code: is the failing program shorter than the one that works?

The paper looks at items that exactly one of the two solves, counts non-empty source lines, and shows one
example step by step. Counts come with the result lines; the example is traced again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ripple.engine.result import Result
from ripple.files import Line
from ripple.paper.judge import verdicts
from ripple.trace import Event

N_SNAPSHOTS = 4
MASK = "■"
_AHEAD = ("pivot", "branch")  # causes of commits that a lookahead led to


@dataclass(frozen=True)
class Failures:
    """Items that one decoder alone fails, and how often its failing program is the shorter one."""

    n: int
    n_shorter: int

    @property
    def share(self) -> float | None:
        """Return the share of shorter failures, or None when there is no failure."""
        return self.n_shorter / self.n if self.n else None


def failures(loser: Line, winner: Line) -> Failures:
    """Look at the items that `winner` solves and `loser` does not."""
    rows = zip(verdicts(loser), verdicts(winner), loser["source_lines"], winner["source_lines"], strict=True)
    mine = [(lost, won) for bad, good, lost, won in rows if good and not bad]
    return Failures(len(mine), sum(lost < won for lost, won in mine))


def choose_example(lopa: Line, rps: Line) -> int:
    """Return the item to show: best one that LoPA fails with a shorter program and RPS solves."""
    rows = zip(verdicts(lopa), verdicts(rps), lopa["source_lines"], rps["source_lines"], strict=True)

    def interest(row: tuple[bool, bool, int, int]) -> tuple[bool, bool, bool]:
        bad, good, lost, won = row
        return good and not bad and lost < won, good and not bad, good != bad

    ranked = [interest(row) for row in rows]
    return ranked.index(max(ranked))


def snapshots(result: Result, n: int = N_SNAPSHOTS) -> list[dict[str, Any]]:
    """Show a traced response after a few of its forwards: runs of [text, state] up to the end token.

    A state is `old`, `new` (committed since the snapshot before), `ahead` (new, by lookahead) or `mask`.
    """
    events = result.trace or []
    pieces: dict[str, str] = events[-1].data["pieces"]
    used = range(result.prompt_tokens, result.prompt_tokens + len(result.new_tokens))
    nfe_all = result.nfe
    at = sorted({max(1, round(nfe_all * (i + 1) / n)) for i in range(n)})
    shown: list[dict[str, Any]] = []
    state: dict[int, str] = {}
    tokens: dict[int, int] = {}
    for nfe, decided in _by_forward(events):
        _apply(decided, state, tokens)
        if nfe in at:
            cells = [
                (pieces.get(str(tokens[p]), ""), state[p]) if p in tokens else (MASK, "mask") for p in used
            ]
            shown.append({"nfe": nfe, "runs": _runs(cells)})
            state = dict.fromkeys(state, "old")
    return shown


def _by_forward(events: Sequence[Event]) -> list[tuple[int, list[Event]]]:
    """Group decisions under the number of the forward that they followed."""
    groups: list[tuple[int, list[Event]]] = []
    for event in events:
        if event.kind == "forward":
            groups.append((event.data["nfe"], []))
        elif event.kind in ("commit", "revoke") and groups:
            groups[-1][1].append(event)
    return groups


def _apply(decided: Sequence[Event], state: dict[int, str], tokens: dict[int, int]) -> None:
    for event in decided:
        for i, pos in enumerate(event.data["pos"]):
            if event.kind == "revoke":
                state.pop(pos, None)
                tokens.pop(pos, None)
            else:
                state[pos] = "ahead" if event.data["cause"] in _AHEAD else "new"
                tokens[pos] = event.data["token"][i]


def _runs(cells: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Join neighbours of the same state."""
    runs: list[list[str]] = []
    for text, state in cells:
        if runs and runs[-1][1] == state:
            runs[-1][0] += text
        else:
            runs.append([text, state])
    return runs
