"""Several processes that share one evaluation, as torchrun starts them.

Every process holds all requests in the same order, works on every n-th and then receives the others' answers.
So each ends up with what one process alone would have, and prompts, scores and tables cannot differ.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from ripple.errors import RippleError

T = TypeVar("T")
FIRST_GPU = "cuda:0"
PATIENCE = timedelta(days=7)  # one process may be done long before another


class Processes:
    """This process among its equals; alone unless the environment says otherwise."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        try:
            self.n = int(environment.get("WORLD_SIZE", "1"))
            self.rank = int(environment.get("RANK", "0"))
            self.local_rank = int(environment.get("LOCAL_RANK", "0"))
        except ValueError as error:
            raise RippleError(f"WORLD_SIZE, RANK and LOCAL_RANK must be whole numbers: {error}.") from None
        if self.n > 1 and not dist.is_initialized():
            # Texts and numbers are exchanged, never tensors of the model: gloo does on every machine.
            try:
                dist.init_process_group("gloo", timeout=PATIENCE)
            except (ValueError, RuntimeError) as error:
                first = str(error).splitlines()[0].rstrip(".")
                raise RippleError(
                    f"WORLD_SIZE says {self.n} processes, but they cannot be joined: {first}. Start them "
                    "with torchrun, or unset WORLD_SIZE."
                ) from None

    @property
    def is_alone(self) -> bool:
        """Whether there are no others."""
        return self.n == 1

    def device(self, name: str) -> str:
        """Return where this process computes: the harness says "cuda:0" when its user said nothing.

        That becomes each process's own GPU, or "auto" on a machine without one.
        """
        if name not in ("auto", "cuda", FIRST_GPU):
            return name
        if not torch.cuda.is_available():
            return "auto" if name == FIRST_GPU else name
        return name if self.is_alone else f"cuda:{self.local_rank}"

    def share(self, n_requests: int) -> range:
        """Return the requests that this process works on."""
        return range(self.rank, n_requests, self.n)

    def check_alike(self, requests: str) -> None:
        """Refuse to go on when the processes do not hold the same requests; `requests` is their hash."""
        if len(set(self._all_values(requests))) > 1:
            raise RippleError(
                "The processes hold different requests, for instance because their caches differ: "
                "start all of them with the same arguments and caches."
            )

    def gather(self, mine: Mapping[int, T], n_requests: int) -> Sequence[T]:
        """Return everybody's answers in the order of the requests."""
        answers: dict[int, T] = {}
        for part in self._all_values(dict(mine)):
            answers.update(part)
        return [answers[index] for index in range(n_requests)]

    def _all_values(self, value: Any) -> list[Any]:
        """Return the value of every process, this one included."""
        if self.is_alone:
            return [value]
        values: list[Any] = [None] * self.n
        dist.all_gather_object(values, value)
        return values


def leave() -> None:
    """Part from the other processes, if there are any."""
    if dist.is_initialized():
        dist.destroy_process_group()
