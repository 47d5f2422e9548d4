"""A trace becomes forwards, and forwards become a line and come back."""

from __future__ import annotations

from typing import Any

import pytest

from ripple.errors import RippleError
from ripple.schedule import ScheduledForward, as_lists, forwards_of, from_lists
from ripple.trace import Event


def event(kind: str, **data: Any) -> Event:
    return Event(kind, 0.0, data)


START, END = event("start", prompt=[7, 7]), event("end", finish="end")


def look(start: int, stop: int, canvases: int) -> Event:
    return event("forward", window=[start, stop], canvases=canvases)


def test_positions_count_from_the_response() -> None:
    commits = [event("commit", pos=[2, 3], cause="standard"), event("commit", pos=[5], cause="pivot")]
    assert forwards_of([START, look(2, 6, 4), *commits, END], "x") == (ScheduledForward(0, 4, 3, (0, 1, 3)),)


def test_what_is_filled_and_revoked_at_once_never_was() -> None:
    events = [
        START, look(2, 6, 1), event("commit", pos=[2, 3], cause="standard"), look(2, 6, 2),
        event("commit", pos=[4], cause="standard"), event("revoke", pos=[2, 4], cause="wino"), END,
    ]  # fmt: skip
    assert forwards_of(events, "x") == (
        ScheduledForward(0, 4, 0, (0, 1)),
        ScheduledForward(0, 4, 1, (), (0,)),
    )


def test_the_engines_own_forward_for_a_next_token_is_not_the_decoders() -> None:
    events = [START, look(2, 6, 1), event("commit", pos=[2], cause="next_token"), look(3, 6, 1), END]
    assert forwards_of(events, "x") == (ScheduledForward(1, 4, 0, ()),)


def test_runs_of_positions_are_written_short() -> None:
    forwards = (ScheduledForward(0, 36, 4, (1, 2, 3, 9)), ScheduledForward(4, 40, 0, (), (9, 10)))
    rows = as_lists(forwards)
    assert rows == [[0, 36, 4, [1, 3, 9, 1]], [4, 40, 0, [], [9, 2]]]
    assert from_lists(rows) == forwards


def test_a_decoding_that_was_cut_off_is_refused() -> None:
    for events in (
        [START, look(2, 6, 1)],
        [START, END],
        [START, look(2, 6, 1), event("end", finish="cancelled")],
    ):
        with pytest.raises(RippleError, match="x: the decoding does not end"):
            forwards_of(events, "x")
