"""Runs pieces of work here, in several processes that share the device, or on the workers of a cluster."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import torch

from ripple.errors import RippleError
from ripple.files import Line
from ripple.pool.cluster import Workers

T = TypeVar("T")
Worked = Line | RippleError  # what came of a part of a piece; an error ends that part alone
POLL_S = 0.05

_done: Any = None  # in a worker: where its lines go


def run_all(
    work: Callable[[T], Iterator[Worked]], pieces: Sequence[T], workers: int | Workers
) -> Iterator[Worked]:
    """Do the work of all pieces and yield what comes of it, in the order in which it is done.

    `workers` is a number of processes, or the workers of a cluster.
    """
    if isinstance(workers, Workers):
        yield from workers.run(work, pieces)
        return
    if workers <= 1 or len(pieces) <= 1:
        for piece in pieces:
            yield from work(piece)
        return
    # CUDA does not survive a fork; a server that imports everything and never touches a GPU can be forked.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([work.__module__])
    done = context.SimpleQueue()  # what is put is on its way before the piece counts as done
    n = min(workers, len(pieces))
    with ProcessPoolExecutor(n, context, _start_worker, (done,)) as pool:
        futures = [pool.submit(_run_piece, work, piece) for piece in pieces]
        try:
            while not all(future.done() for future in futures) or not done.empty():
                if done.empty():
                    time.sleep(POLL_S)
                else:
                    yield done.get()
            for future in futures:
                future.result()
        except BrokenProcessPool:
            raise RippleError(
                "A worker process died, perhaps for lack of memory; use fewer workers."
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _start_worker(done: Any) -> None:
    global _done
    _done = done
    torch.set_num_threads(1)


def _run_piece(work: Callable[[Any], Iterator[Worked]], piece: Any) -> None:
    for worked in work(piece):
        _done.put(worked)
