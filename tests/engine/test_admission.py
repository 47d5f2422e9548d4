"""Requests wait until their keys fit; the key store moves rarely; what can never fit is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

import ripple
from ripple.engine.engine import Engine
from ripple.errors import QueueFull
from ripple.models.kv_store import KVStore

POSITION_BYTES = 2 * 2 * 4 * 8 * 4  # keys and values, 2 layers, 4 heads of 8 numbers in fp32
HOW: dict[str, Any] = {"decoder": "confidence", "length": 16, "block": 8, "cache": "prefix"}


def engine_with(engines: dict[str, ripple.Engine], n_positions: int, **how: Any) -> Engine:
    """An engine whose budget holds the keys of so many positions."""
    return Engine(engines["llada"].model, memory_gb=n_positions * POSITION_BYTES / 1e9, **how)


def moves(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The shapes, slots and positions, that stores are given from now on."""
    shapes: list[tuple[int, int]] = []
    resize = KVStore.resize

    def watched(store: KVStore, n_slots: int, n_positions: int) -> None:
        before = store.k.data_ptr()
        resize(store, n_slots, n_positions)
        if store.k.data_ptr() != before:
            shapes.append((n_slots, n_positions))

    monkeypatch.setattr(KVStore, "resize", watched)
    return shapes


def test_requests_that_come_together_move_the_key_store_once(
    engines: dict[str, ripple.Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, shapes = Engine(engines["llada"].model, max_batch=5), moves(monkeypatch)
    for _ in range(2):
        requests = [engine.submit([1, 2, 3], **HOW) for _ in range(5)]
        requests[0].cancel()
        list(engine.drain(requests))
    assert shapes == [(4, 128)], "no slot for the one who left"
    for _ in range(9):
        engine.submit([1, 2, 3], **HOW)
    engine.tick()
    assert shapes == [(4, 128), (5, 128)], "never more slots than requests are decoded at a time"


def test_a_reserved_store_never_moves(
    engines: dict[str, ripple.Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(engines["llada"].model, max_batch=4)
    engine.reserve(4, 300)
    shapes = moves(monkeypatch)
    list(engine.drain(engine.prepare([1] * n, **HOW) for n in range(1, 280, 13)))
    assert shapes == []


def test_a_reservation_stays_within_the_budget_and_keeps_what_is_live(
    engines: dict[str, ripple.Engine],
) -> None:
    engine = engine_with(engines, 8 * 128)
    live = [engine.submit([1, 2, i], **HOW) for i in range(6)]
    engine.tick()
    engine.reserve(8, 1000)  # the six slots that are taken would not fit at that length
    assert engine.runner.store.k.shape[1:4:2] == (6, 128)
    engine.reserve(99, 100)
    assert engine.runner.store.k.shape[1:4:2] == (8, 128)
    alone = [engines["llada"].generate([1, 2, i], **HOW).token_ids for i in range(6)]
    list(engine.drain(live))
    assert [request.result().token_ids for request in live] == alone
    engine.reserve(8, 1000)
    assert engine.runner.store.k.shape[1:4:2] == (1, 1024)
    engine.reserve(1, 2000)  # not even one slot would fit
    assert engine.runner.store.k.shape[1:4:2] == (1, 1024)


@pytest.mark.parametrize("arguments", [(0, 8), (-1, 8), (2, 0), ("2", 8), (2, 8.5)])
def test_a_reservation_is_checked(engines: dict[str, ripple.Engine], arguments: tuple[Any, Any]) -> None:
    with pytest.raises(ripple.RippleError, match="must be a whole number of at least 1"):
        engines["llada"].reserve(*arguments)


def test_requests_wait_until_their_keys_fit(engines: dict[str, ripple.Engine]) -> None:
    engine = engine_with(engines, 2 * 128)
    requests = [engine.submit([1, 2, i], **HOW) for i in range(5)]
    most = 0
    while any(request.finish is None for request in requests):
        engine.tick()
        most = max(most, engine.n_live)
        assert engine.runner.store.k.shape[1] * engine.runner.store.k.shape[3] <= 2 * 128
    assert most == 2
    alone = [engines["llada"].generate([1, 2, i], **HOW).token_ids for i in range(5)]
    assert [request.result().token_ids for request in requests] == alone


def test_requests_without_a_cache_do_not_wait_for_keys(engines: dict[str, ripple.Engine]) -> None:
    engine = engine_with(engines, 128)
    for _ in range(4):
        engine.submit([1, 2], **HOW | {"cache": "none", "decoder": "default"})
    engine.tick()
    assert engine.n_live == 4


def test_a_long_request_gets_its_turn_and_the_same_tokens(engines: dict[str, ripple.Engine]) -> None:
    """It needs the whole budget: those before it end first, those behind it wait for it."""
    engine = engine_with(engines, 4 * 128)
    short = [engine.submit([3, i], **HOW) for i in range(3)]
    long = engine.submit([7] * 400, **HOW)
    late = engine.submit([3, 9], **HOW)
    ended = [request.number for request in engine.drain([*short, long, late])]
    assert ended.index(long.number) == 3 and ended[-1] == late.number
    assert long.result().token_ids == engines["llada"].generate([7] * 400, **HOW).token_ids
    assert late.result().token_ids == engines["llada"].generate([3, 9], **HOW).token_ids


def test_a_request_that_can_never_fit_is_refused_with_the_numbers(engines: dict[str, ripple.Engine]) -> None:
    engine = engine_with(engines, 128)
    with pytest.raises(
        ripple.RippleError, match=r"needs 0.000131 GB .* 256 positions .* 6.55e-05 GB of memory_gb"
    ):
        engine.submit([1] * 200, **HOW)
    assert engine.n_waiting == 0
    assert engine.generate([1] * 200, **HOW | {"cache": "none"}).is_full


def test_the_history_of_klass_counts_too(engines: dict[str, ripple.Engine]) -> None:
    engine = engine_with(engines, 128)
    history = 16 * engine.model.config.vocab_size * 4
    assert history < 128 * POSITION_BYTES < history * 17
    with pytest.raises(ripple.RippleError, match="16 rows of history"):
        engine.submit([1], **HOW | {"decoder": "klass"})
    requests = [engine.submit([1], **HOW | {"decoder": "klass", "cache": "none"}) for _ in range(40)]
    engine.tick()
    assert engine.n_live == 128 * POSITION_BYTES // history
    list(engine.drain(requests))
    assert engine.runner._history.n_rows == 0


def test_histories_never_take_more_than_the_budget(engines: dict[str, ripple.Engine]) -> None:
    """Whatever gaps those that end leave: what the table really has is counted."""
    rng = random.Random(0)
    vocab_size = engines["llada"].model.config.vocab_size
    engine = Engine(engines["llada"].model, memory_gb=4 * 100 * vocab_size / 1e9)
    how: dict[str, Any] = {"block": 1, "cache": "none", "decoder": "klass"}
    requests = [engine.submit([1, i % 40], length=rng.randrange(1, 60), **how) for i in range(60)]
    most = 0
    while any(request.finish is None for request in requests):
        engine.tick()
        most = max(most, engine.runner._history.n_rows)
    assert 60 < most <= 100 and all(request.result().is_full for request in requests)
    alone = [engines["llada"].generate([1, i % 40], requests[i].options).token_ids for i in range(0, 60, 7)]
    assert [requests[i].result().token_ids for i in range(0, 60, 7)] == alone


def test_history_of_many_lengths_uses_no_more_rows_than_the_longest_needs(
    engines: dict[str, ripple.Engine],
) -> None:
    history = engines["llada"].runner._history
    most = 0
    for length in range(1, 97):
        entry = history.open(length)
        most = max(most, history.n_rows)
        history.close(entry)
    assert most == 96 and history.n_rows == 0
    entries = [history.open(length) for length in (5, 3, 8, 2)]
    history.close(entries[1])
    history.close(entries[2])
    assert history.open(11).start == 5, "neighbouring parts that came back are one"
    spans = sorted((e.start, e.start + e.length) for e in (entries[0], entries[3]))
    assert spans == [(0, 5), (16, 18)]


def test_no_memory_for_keys_fails_one_request_and_not_the_engine(
    engines: dict[str, ripple.Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(engines["llada"].model)
    resize = KVStore.resize

    def scarce(store: KVStore, n_slots: int, n_positions: int) -> None:
        if n_positions > 200:
            raise MemoryError("no room")
        resize(store, n_slots, n_positions)

    monkeypatch.setattr(KVStore, "resize", scarce)
    bad, good = engine.submit([1] * 300, **HOW), engine.submit([1, 2], **HOW)
    list(engine.drain([bad, good]))
    with pytest.raises(ripple.RequestError, match="no room could be made for its keys: MemoryError: no room"):
        bad.result()
    assert good.result().is_full and engine._admission.n_held == 0


@pytest.mark.parametrize("limit", [6.5, 4.0])  # times the old store; the new one is six times it
def test_keys_stay_when_old_and_new_store_do_not_fit_together(
    engines: dict[str, ripple.Engine], limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(engines["llada"].model, max_batch=3)
    how = HOW | {"length": 24, "cache": "dual:refresh=9"}
    live = engine.submit([1, 2, 3], **how)
    for _ in range(4):
        engine.tick()
    store, n_most = engine.runner.store, limit * engine.runner.store.k.numel() * 2
    zeros, refused = KVStore._zeros, []

    def scarce(store: KVStore, shape: torch.Size) -> list[torch.Tensor]:
        if 2 * (shape.numel() + store.k.numel()) > n_most:
            refused.append(shape)
            raise torch.OutOfMemoryError("device")
        return zeros(store, shape)

    monkeypatch.setattr(KVStore, "_zeros", scarce)
    wide = engine.submit([4] * 300, **how)  # wants another slot and three times the positions
    list(engine.drain([live, wide]))
    assert live.result().token_ids == engines["llada"].generate([1, 2, 3], **how).token_ids
    if limit > 6:
        assert wide.result().token_ids == engines["llada"].generate([4] * 300, **how).token_ids
    else:
        with pytest.raises(ripple.RequestError, match="no room could be made for its keys: OutOfMemoryError"):
            wide.result()
    assert len(refused) == (1 if limit > 6 else 2) and store.k.shape == store.v.shape


def test_a_queue_without_room_is_told_and_never_waited_for(engines: dict[str, Engine]) -> None:
    engine = Engine(engines["llada"].model)
    engine.queue_limit = 0
    with pytest.raises(QueueFull, match="0 requests are waiting"):
        engine.generate([1], length=4)


@pytest.mark.parametrize("field", ["max_batch", "queue_limit"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "8"])
def test_limits_are_checked(folders: dict[str, Path], field: str, value: object) -> None:
    with pytest.raises(ripple.RippleError, match=f"{field} must be a whole number of at least 1"):
        ripple.load(folders["llada"], device="cpu", **{field: value})


@pytest.mark.parametrize("value", [0, -1, "8", True, float("nan")])
def test_the_budget_is_checked(folders: dict[str, Path], value: object) -> None:
    with pytest.raises(ripple.RippleError, match="memory_gb must be a number above 0"):
        ripple.load(folders["llada"], device="cpu", memory_gb=value)
