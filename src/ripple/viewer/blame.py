"""Which commit of a trace cost its answer, where the lines of `ripple bench blame` know it."""

from __future__ import annotations

from collections.abc import Sequence

from ripple.files import Line
from ripple.trace import Event


def guilty_commit(events: Sequence[Event], lines: Sequence[Line]) -> int | None:
    """Return the number of the guilty commit, from 1, or None where no case is about this trace.

    A case names no trace: it belongs to one with the same text, commits and guilty tokens.
    """
    commits = [event.data for event in events if event.kind == "commit" and event.data["pos"]]
    end = next((event.data for event in events if event.kind == "end"), None)
    if end is None:
        return None
    for case in (case for line in lines for case in line.get("cases", ())):
        if (case["text"], case["of"]) == (end["text"], len(commits)):
            guilty = commits[case["commit"] - 1]
            if [end["pieces"].get(str(token), "") for token in guilty["token"]] == case["tokens"]:
                return int(case["commit"])
    return None
