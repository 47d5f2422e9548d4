"""The application on Ray Serve: a replica holds one engine and serves it as `ripple serve` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ripple.errors import RippleError
from ripple.options import Options
from ripple.replicas import REPLICA
from ripple.server.options import ServerOptions

if TYPE_CHECKING:
    from fastapi import FastAPI

HEALTH_S = 2.0  # between two looks at a replica's health
SPARE = 16  # requests that reach a replica beyond its batch and its queue, to be refused there with 429


@dataclass(frozen=True)
class Plan:
    """What every replica is, and how many there may be."""

    model: str
    arguments: Mapping[str, Any]  # of `ripple.load`
    name: str  # for clients
    options: Options  # of requests that do not say otherwise
    limits: ServerOptions
    least: int
    most: int
    gpus: float  # of each

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise RippleError(
                f"replicas must be N or MIN:MAX with 1 <= MIN <= MAX, got {self.least}:{self.most}."
            )

    def deployment(self) -> Any:
        """Return the Serve application."""
        from ray import serve

        batch = self.limits.max_batch
        how: dict[str, Any] = {
            "name": REPLICA, "max_ongoing_requests": batch + self.limits.queue + SPARE,
            "ray_actor_options": {"num_cpus": 1, "num_gpus": self.gpus},
            "graceful_shutdown_timeout_s": self.limits.drain, "health_check_period_s": HEALTH_S,
        }  # fmt: skip
        if self.least == self.most:
            how["num_replicas"] = self.most
        else:  # a replica with a full batch is busy; requests beyond it call for another
            how["autoscaling_config"] = {
                "min_replicas": self.least, "max_replicas": self.most, "target_ongoing_requests": batch,
            }  # fmt: skip
        return serve.deployment(**how)(serve.ingress()(Replica)).bind(self)


class Replica:
    """One engine behind the server's application, in a process of its own."""

    def __init__(self, plan: Plan) -> None:
        from ripple.engine.load import load
        from ripple.replicas.service import ReplicaService

        limits = plan.limits
        engine = load(plan.model, max_batch=limits.max_batch, queue_limit=limits.queue, **plan.arguments)
        self._service = ReplicaService(engine, plan.name, plan.options, limits)
        self._service.warm_up()

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Return the application; Serve calls this when the replica is made."""
        from ripple.server.app import create_app

        return create_app(self._service)

    def check_health(self) -> None:
        """Raise when the engine has stopped: Serve then replaces the replica."""
        if not self._service.is_well:
            raise RuntimeError("The engine has stopped.")

    def own_metrics(self) -> tuple[str, bytes]:
        """Return this replica's id and its metrics, for whichever replica is asked for those of all."""
        return self._service.own_metrics()
