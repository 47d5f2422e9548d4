"""What the host does while it waits for the device changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import ripple
from ripple.caches import CACHES
from ripple.decoders import DECODERS
from ripple.engine.hear import Heard, Landing, Queued
from ripple.trace import Event


def told(events: list[Event]) -> list[tuple[str, dict[str, object]]]:
    """Everything that was traced, but for the times."""
    return [(e.kind, {k: v for k, v in e.data.items() if k != "seconds"}) for e in events]


@pytest.mark.parametrize(
    ("name", "lookahead"), [*((name, "packed") for name in DECODERS), ("rps", "batched"), ("lopa", "batched")]
)
@pytest.mark.parametrize("cache", CACHES)
def test_a_rehearsed_request_is_answered_as_any_other(
    folders: dict[str, Path],
    family: str,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    cache: str,
    lookahead: str,
) -> None:
    engine, pieces = ripple.load(folders[family]), []
    how = {"decoder": name, "length": 24, "block": 8, "cache": cache, "lookahead": lookahead, "trace": True}
    prompts = [[3, 4, 5, 6], [7, 8, 9]]
    plain = engine.generate(prompts, **how)

    def late(self: Landing, queued: Queued, meanwhile: Iterator[None]) -> Heard:
        pieces.extend(next(meanwhile) for _ in range(7))  # ends in the middle of a second round
        return queued.cut(queued.flat.numpy())

    monkeypatch.setattr(Landing, "hear", late)
    rehearsed = engine.generate(prompts, **how)
    assert len(pieces) >= 7
    for one, other in zip(plain, rehearsed, strict=True):
        assert told(one.trace) == told(other.trace) and one.token_ids == other.token_ids


class Arrival:
    """An event of a device that is asked three times before it is done."""

    def __init__(self) -> None:
        self.n_left = 3

    def record(self, stream: None) -> None:
        pass

    def synchronize(self) -> None:
        self.n_left = 0

    def query(self) -> bool:
        self.n_left -= 1
        return self.n_left < 0


@pytest.mark.parametrize(("n_threads", "n_pieces"), [(1, 3), (2, 0)])
def test_the_wait_rehearses_where_no_other_thread_wants_the_interpreter(
    monkeypatch: pytest.MonkeyPatch, n_threads: int, n_pieces: int
) -> None:
    monkeypatch.setattr("ripple.engine.hear.threading.active_count", lambda: n_threads)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    landing = Landing(torch.device("cpu"))
    landing._arrival, landing._memory = Arrival(), torch.empty(64)  # type: ignore[assignment]
    pieces = iter([None] * 9)
    heard = landing.hear(Queued(torch.full((2 * 6,), 0.5), n_rows=2, k=1, owners={}, n_kl={}), pieces)
    assert len(list(pieces)) == 9 - n_pieces
    landing._memory.zero_()  # as the next tick will
    assert heard.stats.p.tolist() == [0.5, 0.5]
