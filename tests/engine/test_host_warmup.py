"""What the host does while it waits for the device changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import ripple
from ripple.caches import CACHES
from ripple.decoders import DECODERS
from ripple.engine.readback import HostReadback, QueuedStats, TickStats
from ripple.trace import Event


def told(events: list[Event]) -> list[tuple[str, dict[str, object]]]:
    """Everything that was traced, but for the times."""
    return [(e.kind, {k: v for k, v in e.data.items() if k != "seconds"}) for e in events]


@pytest.mark.parametrize(
    ("name", "lookahead"), [*((name, "packed") for name in DECODERS), ("rps", "batched"), ("lopa", "batched")]
)
@pytest.mark.parametrize("cache", [name for name, cls in CACHES.items() if not cls.needs_blocks])
def test_a_warm_up_changes_no_request(
    engines: dict[str, ripple.Engine],
    family: str,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    cache: str,
    lookahead: str,
) -> None:
    engine, pieces = engines[family], []
    how = {"decoder": name, "length": 24, "block": 8, "cache": cache, "lookahead": lookahead, "trace": True}
    prompts = [[3, 4, 5, 6], [7, 8, 9]]
    plain = engine.generate(prompts, **how)

    def late(self: HostReadback, queued: QueuedStats, while_waiting: Iterator[None]) -> TickStats:
        pieces.extend(next(while_waiting) for _ in range(7))  # ends in the middle of a second round
        return queued.unpack(queued.flat.numpy())

    monkeypatch.setattr(HostReadback, "wait", late)
    warmed = engine.generate(prompts, **how)
    assert len(pieces) >= 7
    for one, other in zip(plain, warmed, strict=True):
        assert told(one.trace) == told(other.trace) and one.token_ids == other.token_ids


class Copied:
    """An event of a device that is asked three times before it is done."""

    def __init__(self) -> None:
        self.n_left = 3

    def record(self, stream: None) -> None:
        pass

    def query(self) -> bool:
        self.n_left -= 1
        return self.n_left < 0


@pytest.mark.parametrize(("n_threads", "interval", "offers"), [(1, 0.005, 0), (2, 0.005, 3), (2, 0.0005, 0)])
def test_the_wait_warms_the_host_up_and_offers_the_interpreter_to_other_threads(
    monkeypatch: pytest.MonkeyPatch, n_threads: int, interval: float, offers: int
) -> None:
    naps: list[float] = []
    monkeypatch.setattr("ripple.engine.readback.sys.getswitchinterval", lambda: interval)
    monkeypatch.setattr("ripple.engine.readback.threading.active_count", lambda: n_threads)
    monkeypatch.setattr("ripple.engine.readback.time.sleep", naps.append)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    readback = HostReadback(torch.device("cpu"))
    readback._copied, readback._memory = Copied(), torch.empty(64)  # type: ignore[assignment]
    pieces = iter([None] * 9)
    queued = QueuedStats(torch.full((2 * 6,), 0.5), n_rows=2, k=1, probes={}, n_kl={})
    stats = readback.wait(queued, pieces)
    assert len(list(pieces)) == 6 and naps == [0] * offers
    readback._memory.zero_()  # as the next tick will
    assert stats.stats.p.tolist() == [0.5, 0.5]
