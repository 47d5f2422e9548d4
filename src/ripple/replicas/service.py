"""A replica's service: that of one server, but its metrics are those of all replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from ripple.replicas import NAME, REPLICA
from ripple.server.service import Service

PATIENCE_S = 5.0  # with the other replicas


class ReplicaService(Service):
    """One of several services that a client cannot tell apart."""

    def own_metrics(self) -> tuple[str, bytes]:
        """Return this replica's id and its metrics."""
        from ray import serve

        return serve.get_replica_context().replica_tag, self.metrics.text()

    async def metrics_text(self) -> bytes:
        """Return the metrics of every replica; while one of them cannot answer, only our own."""
        from ray import serve
        from ray.exceptions import RayError
        from ray.serve.exceptions import RayServeException

        replicas = serve.get_deployment_handle(REPLICA, NAME).broadcast("own_metrics")
        try:
            told = await asyncio.to_thread(replicas.results, timeout_s=PATIENCE_S)
        except (
            RayError,
            RayServeException,
            TimeoutError,
        ):  # one has just died; the next try is without it
            told = [self.own_metrics()]
        return generate_latest(_All(told))


class _All(Collector):
    """The metrics of several replicas, each sample with its replica's id as a label."""

    def __init__(self, told: Iterable[tuple[str, bytes]]) -> None:
        self._told = sorted(told)

    def collect(self) -> Iterable[Metric]:
        """Return every metric once, with the samples of all replicas."""
        all_of: dict[str, Metric] = {}
        for replica, text in self._told:
            for family in text_string_to_metric_families(text.decode()):
                metric = all_of.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    metric.add_sample(sample.name, sample.labels | {"replica": replica}, sample.value)
        return all_of.values()
