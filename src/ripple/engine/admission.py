"""Which waiting requests may start: places in the batch, slots of the key store, and memory for both."""

from __future__ import annotations

import itertools
import math
from collections import deque
from typing import NamedTuple

from ripple.caches import NoCache
from ripple.decoders import decoder
from ripple.engine.request import Request
from ripple.engine.runner import Runner
from ripple.errors import RippleError
from ripple.look import check_wants
from ripple.options import Options

POSITION_STEP = 128  # slots are a multiple of this long: similar prompts do not move the store each time
MOST_POSITIONS = 1 << 24  # far above every model's
GROWTH = 1.5  # a store that must grow takes this many times its slots, where there is room
FP32 = 4  # bytes of one number of the KL history


class Held(NamedTuple):
    """What one live request holds."""

    slot: int | None
    n_positions: int  # of its slot


class Admission:
    """Hands out slots in the order of arrival; what does not fit waits, and so does all behind it."""

    def __init__(self, runner: Runner, max_batch: int, budget: float) -> None:
        self.max_batch = max_batch
        self.budget = budget  # bytes of keys and KL history
        self._runner = runner
        self._held: dict[int, Held] = {}  # by number of the request
        self._shape = (0, 0)  # slots and positions of the store

    @property
    def n_held(self) -> int:
        """How many requests hold something."""
        return len(self._held)

    def check(self, request: Request) -> None:
        """Refuse a request that could not even run alone."""
        held, kl_rows = _wanted(request, 0), sum(_kl_lengths(request))
        need = self._bytes((1, held.n_positions), kl_rows)
        if need > self.budget:
            raise RippleError(
                f"The request needs {need / 1e9:.3g} GB to keep the keys of {held.n_positions} positions and "
                f"{kl_rows} rows of history, more than the {self.budget / 1e9:.3g} GB of memory_gb; "
                "shorten it or decode it without a cache."
            )

    def most_positions(self, options: Options) -> int:
        """Return of how many positions the budget holds what a single request keeps of each."""
        is_cached = options.policy.name != NoCache.name
        wants_kl = check_wants(decoder(options.decoder).wants).kl
        each = self._bytes((1, 1), 0) * is_cached + self._bytes((0, 0), 1) * wants_kl
        most = self.budget / each if each else math.inf
        return int(min(most, MOST_POSITIONS) // POSITION_STEP * POSITION_STEP)

    def reserve(self, n_requests: int, n_positions: int) -> None:
        """Make room for so many cached requests of this length, or for as many as the budget allows."""
        length = max(self._shape[1], _rounded(n_positions))
        n_slots, kl_rows = max(self._shape[0], min(n_requests, self.max_batch)), self._runner.kl_rows([])
        while n_slots and self._bytes((n_slots, length), kl_rows) > self.budget:
            n_slots -= 1
        if n_slots >= max(1, self._tightest()[0]):  # what is live keeps its slots
            self._resize((n_slots, length))

    def admit(self, waiting: deque[Request], n_live: int) -> list[Request]:
        """Take from the queue what may start now, and make room for all of it at once.

        Where that fails, room is made for the first alone; what is raised then is that one's failure.
        """
        most = self.max_batch - n_live
        while True:
            admitted, shape = self._take(waiting, most)
            try:
                self._make_room(admitted, shape)
            except BaseException as error:
                for request in reversed(admitted):
                    self.release(request)
                    waiting.appendleft(request)
                if len(admitted) == 1 or not isinstance(error, Exception):
                    raise
                most = 1
            else:
                return admitted

    def _take(self, waiting: deque[Request], most: int) -> tuple[list[Request], tuple[int, int]]:
        """Take at most so many requests that fit the budget; return the store's shape with them, too."""
        admitted: list[Request] = []
        kl_lengths: list[int] = []
        shape = self._shape
        while waiting and len(admitted) < most:
            request = waiting[0]
            if request.finish is None:
                wider = self._shape_with(request, shape, kl_lengths)
                if wider is None:
                    break
                shape = wider
                admitted.append(request)
                kl_lengths += _kl_lengths(request)
            waiting.popleft()
        return admitted, shape

    def _make_room(self, admitted: list[Request], shape: tuple[int, int]) -> None:
        if shape != self._shape:
            kl_lengths = [n for request in admitted for n in _kl_lengths(request)]
            self._resize(self._generous(shape, self._runner.kl_rows(kl_lengths)))
        for request in admitted:
            request.slot = self._held[request.number].slot
            for length in _kl_lengths(request):
                request.kl = self._runner.open_kl(length)

    def release(self, request: Request) -> None:
        """Take back what a finished request held."""
        self._held.pop(request.number, None)
        request.slot = None
        if request.kl is not None:
            self._runner.close_kl(request.kl)
            request.kl = None

    def _shape_with(
        self, request: Request, shape: tuple[int, int], kl_lengths: list[int]
    ) -> tuple[int, int] | None:
        """Give a request a slot and return the store's shape with it, or None when it has to wait.

        `kl_lengths` are the parts of the KL history that those admitted before it will take.
        """
        taken = {held.slot for held in self._held.values() if held.slot is not None}
        held = _wanted(request, next(slot for slot in itertools.count() if slot not in taken))
        kl_rows = self._runner.kl_rows([*kl_lengths, *_kl_lengths(request)])
        for n_slots, n_positions in (shape, self._tightest()):
            if held.slot is not None:
                n_slots, n_positions = max(n_slots, held.slot + 1), max(n_positions, held.n_positions)
            if self._bytes((n_slots, n_positions), kl_rows) <= self.budget:
                self._held[request.number] = held
                return n_slots, n_positions
        return None

    def _tightest(self) -> tuple[int, int]:
        """Return the smallest store that holds what is live."""
        cached = [held for held in self._held.values() if held.slot is not None]
        return (
            1 + max((held.slot or 0 for held in cached), default=-1),
            max((held.n_positions for held in cached), default=0),
        )

    def _generous(self, shape: tuple[int, int], kl_rows: int) -> tuple[int, int]:
        """Return a shape with room to spare where it grows: moving the store is dear."""
        old_slots, old_positions = self._shape
        n_slots, n_positions = shape
        if n_slots > old_slots:
            n_slots = max(n_slots, min(self.max_batch, int(GROWTH * old_slots)))
        if n_positions > old_positions:
            n_positions = max(n_positions, _rounded(int(GROWTH * old_positions)))
        fits = self._bytes((n_slots, n_positions), kl_rows) <= self.budget
        return (n_slots, n_positions) if fits else shape

    def _bytes(self, shape: tuple[int, int], kl_rows: int) -> float:
        keys = shape[0] * shape[1] * self._runner.position_bytes
        return keys + FP32 * kl_rows * self._runner.config.vocab_size

    def _resize(self, shape: tuple[int, int]) -> None:
        self._runner.resize_store(*shape)
        self._shape = shape


def _wanted(request: Request, slot: int) -> Held:
    return Held(slot, _rounded(request.canvas.max_len)) if request.is_cached else Held(None, 0)


def _kl_lengths(request: Request) -> list[int]:
    """Return how long a part of the KL history a request wants, if it wants any."""
    return [request.most_tokens] if request.wants.kl else []


def _rounded(n_positions: int) -> int:
    return -(-n_positions // POSITION_STEP) * POSITION_STEP


def check_count(name: str, value: object) -> None:
    """Refuse a limit that is no whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RippleError(f"{name} must be a whole number of at least 1, got {value!r}.")


def check_memory(memory_gb: object) -> None:
    """Refuse a budget that is no number above 0; none is the device's own."""
    is_number = isinstance(memory_gb, int | float) and not isinstance(memory_gb, bool)
    if memory_gb is not None and not (is_number and memory_gb > 0):  # type: ignore[operator]
        raise RippleError(f"memory_gb must be a number above 0, got {memory_gb!r}.")
