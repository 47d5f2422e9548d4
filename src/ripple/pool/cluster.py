"""The workers of a Ray cluster: one engine each, all of them fed from one stream of prompts.

Ray Data moves the prompts and the outcomes, restarts workers that died and gives their prompts to others. Who
reads the outcomes decides what is kept: a worker holds nothing but its engine. The prompts of a job lie in
Ray's object store, which goes to the disk when it is full.
"""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any, TypeVar

from ripple.engine.engine import Engine
from ripple.errors import RippleError, WorkFailed
from ripple.pool.decode import NumberedPrompt
from ripple.pool.worker import FATAL, Keep, Recipe, Worker, answer, call, first_line, without_tokenizer

BLOCK = 8  # rows that a worker is given at a time; a worker that dies costs what it was given
BATCH = {False: 8, True: 64}  # rows decoded together by a worker without a GPU, and with one
LOCAL = "local"
INIT_DEATHS = (
    10  # workers that may die while they start, one after the other; a fault of ours is told instead
)
STORE_BYTES = 500_000_000  # of a cluster of our own on this machine
_OWN = {  # what is set before Ray is imported to start a cluster of our own
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # its address is that of the loopback device
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}
T = TypeVar("T")


@dataclass(frozen=True)
class Cluster:
    """Where workers run and how many there may be."""

    least: int = 1
    most: int = 1
    gpus: float | None = None  # per worker; None: one where the cluster has any
    address: str = LOCAL

    @contextmanager
    def joined(self) -> Iterator[Workers]:
        """Join the cluster, or start one on this machine, while the block runs."""
        ray = self.ray()
        with redirect_stdout(sys.stderr):  # where Ray's own remarks go
            try:
                with _silent_stderr():  # Ray's C++ says there how it logs
                    ray.init(**self._how())
            except (ConnectionError, OSError, ValueError, RuntimeError) as error:
                where = "" if self.address == LOCAL else f" at {self.address}"
                raise RippleError(f"Cannot join the Ray cluster{where}: {first_line(error)}.") from None
            try:
                has_gpus = ray.cluster_resources().get("GPU", 0) > 0
                yield Workers(self.least, self.most, float(has_gpus) if self.gpus is None else self.gpus)
            except ray.exceptions.RayError as error:
                raise WorkFailed(f"The Ray cluster failed: {first_line(error)}.") from error
            finally:
                ray.shutdown()

    def ray(self) -> Any:
        """Import Ray, or say how to install it."""
        if self.address == LOCAL:
            for name, value in _OWN.items():
                os.environ.setdefault(name, value)
        try:
            import ray
        except ImportError:
            raise RippleError("Workers of a cluster need Ray: pip install 'ripple-dllm[ray]'.") from None
        return ray

    def _how(self) -> dict[str, Any]:
        """Return how the cluster is joined; one of our own talks to this machine alone and ends with us."""
        quiet = {"log_to_driver": False, "logging_level": "critical"}
        if self.address != LOCAL:
            return {"address": self.address, **quiet}
        return {
            "address": LOCAL, "num_cpus": max(self.most, os.cpu_count() or 1), "include_dashboard": False,
            "object_store_memory": STORE_BYTES, **quiet,
        }  # fmt: skip


@dataclass(frozen=True)
class Workers:
    """The workers of a cluster that was joined."""

    least: int
    most: int
    gpus: float  # of each

    def recipe(self, model: str, arguments: Mapping[str, Any], batch: int | None) -> Recipe:
        """Return how each of them gets its engine."""
        return Recipe(model, arguments, batch or BATCH[self.gpus > 0])

    def ask(self, recipe: Recipe, question: Callable[[Engine], T]) -> T:
        """Return what a question says of an engine as the workers have it."""
        said: T = self.call(answer, recipe, question)
        return said

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function on a worker and return what it returns."""
        import ray

        said: T | RippleError = ray.get(ray.remote(**self._needs)(call).remote(function, *arguments))
        if isinstance(said, RippleError):
            raise said
        return said

    def run(self, work: Callable[[T], Iterator[Any]], pieces: Sequence[T]) -> Iterator[Any]:
        """Do the work of all pieces and yield what comes of it, in the order in which it is done."""
        import ray

        remote = ray.remote(**self._needs)(work).options(num_returns="streaming")
        left, running = list(reversed(pieces)), list[Any]()
        while left or running:
            while left and len(running) < self.most:
                running.append(remote.remote(left.pop()))
            [ready], _ = ray.wait(running, num_returns=1, fetch_local=False)
            try:
                yield ray.get(next(ready))
            except StopIteration:
                running.remove(ready)

    @property
    def _needs(self) -> dict[str, Any]:
        return {"num_cpus": 1, "num_gpus": self.gpus or None}

    def decode(
        self, recipe: Recipe, prompts: Iterable[NumberedPrompt], keep: Keep = without_tokenizer
    ) -> Iterator[tuple[int, Any]]:
        """Yield each prompt's number and outcome as its block comes back."""
        import ray.data
        from ray.cloudpickle import dumps, loads

        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.max_consecutive_actor_init_deaths = INIT_DEATHS
        rows = []
        for number, prompt, options, error in prompts:
            if error is not None:
                yield number, error
            else:
                rows.append({"number": number, "asked": dumps((prompt, options))})
        if not rows:
            return
        together = math.ceil(2 * recipe.batch / BLOCK)  # blocks that keep an engine's batch full
        pool = ray.data.ActorPoolStrategy(
            min_size=self.least, max_size=self.most, max_tasks_in_flight_per_actor=2 * together,
            max_concurrent_calls_per_actor=together, enable_true_multi_threading=True,
        )  # fmt: skip
        outcomes = ray.data.from_items(rows, override_num_blocks=math.ceil(len(rows) / BLOCK)).map_batches(
            Worker, batch_size=None, compute=pool, fn_constructor_args=(recipe, keep), **self._needs
        )  # fmt: skip
        del rows
        for block in outcomes.iter_batches(batch_size=None, prefetch_batches=0):
            for number, outcome in zip(block["number"], block["outcome"], strict=True):
                if number == FATAL:
                    raise loads(outcome)
                yield int(number), loads(outcome)


@contextmanager
def _silent_stderr() -> Iterator[None]:
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
