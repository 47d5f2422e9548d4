"""Options of the subcommands that can use the workers of a Ray cluster."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ripple.cli.options import load_arguments
from ripple.cli.running import DEFAULT_MODEL
from ripple.errors import RippleError

if TYPE_CHECKING:
    from ripple.pool.cluster import Cluster, Workers
    from ripple.pool.worker import Recipe


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which workers decode."""
    group = parser.add_argument_group("workers", "One engine per worker; needs ripple-dllm[ray].")
    group.add_argument("--ray", action="store_true", help="decode on the workers of a Ray cluster")
    group.add_argument("--workers", metavar="N|MIN:MAX", help="how many workers (default 1)")
    group.add_argument(
        "--gpus-per-worker", metavar="N", help="GPUs of each (default 1 where the cluster has any, else 0)"
    )
    group.add_argument(
        "--address", metavar="A", help="local, auto, HOST:PORT or ray://HOST:PORT (default local: here)"
    )


def cluster_of(args: argparse.Namespace) -> Cluster | None:
    """Return the cluster that was asked for, or nothing."""
    given = [args.workers, args.gpus_per_worker, args.address]
    if not args.ray and all(value is None for value in given):
        return None
    return make_cluster(args.workers or "1", args.gpus_per_worker, args.address)


def make_cluster(workers: str, gpus: str | None, address: str | None, what: str = "--workers") -> Cluster:
    """Return the cluster that options describe; without Ray, say so now."""
    from ripple.pool.cluster import LOCAL, Cluster

    least, most = range_of(workers, what)
    cluster = Cluster(least, most, None if gpus is None else _gpus(gpus), address or LOCAL)
    cluster.ray()
    return cluster


def range_of(text: str, what: str) -> tuple[int, int]:
    """Return both ends of N or MIN:MAX."""
    try:
        least, most = map(int, text.split(":") if ":" in text else (text, text))
    except ValueError:
        least = most = 0
    if not 1 <= least <= most:
        raise RippleError(f"{what} must be a number, or MIN:MAX with 1 <= MIN <= MAX, got {text!r}.")
    return least, most


def _gpus(text: str) -> float:
    try:
        gpus = float(text)
    except ValueError:
        gpus = -1.0
    if not 0 <= gpus <= 1024 or (gpus > 1 and gpus != int(gpus)):
        raise RippleError(f"--gpus-per-worker must be a share of a GPU or a whole number, got {text!r}.")
    return gpus


def recipe_of(workers: Workers, table: Mapping[str, Any], batch: int | None) -> Recipe:
    """Return how each worker gets the model that was asked for."""
    return workers.recipe(shared_path(str(table.get("model", DEFAULT_MODEL))), load_arguments(table), batch)


def shared_path(name: str) -> str:
    """Return a model's name as other processes understand it: a folder's path from the root."""
    return str(Path(name).absolute()) if Path(name).is_dir() else name
