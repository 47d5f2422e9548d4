"""Counters, gauges and times for Prometheus: our own names, and those that vLLM's dashboards read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ripple.server.replies import FINISH_REASONS

if TYPE_CHECKING:
    from ripple.engine.request import Request
    from ripple.server.service import Service

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)
ALIASES = {  # our name -> vLLM's
    "ripple_requests_running": "vllm:num_requests_running",
    "ripple_requests_waiting": "vllm:num_requests_waiting",
    "ripple_requests": "vllm:request_success",
    "ripple_time_to_first_text_seconds": "vllm:time_to_first_token_seconds",
    "ripple_request_seconds": "vllm:e2e_request_latency_seconds",
    "ripple_prompt_tokens": "vllm:prompt_tokens",
    "ripple_generation_tokens": "vllm:generation_tokens",
    "ripple_forwards": "vllm:diffusion_num_denoising_steps",
    "ripple_canvas_positions": "vllm:diffusion_num_canvas_positions",
    "ripple_committed_tokens": "vllm:diffusion_num_committed_tokens",
}
FINISHED_REASON = "finished_reason"  # vLLM's label for what we call finish, and its names for its values
REASONS = FINISH_REASONS | {"cancelled": "abort", "error": "error"}


class Metrics:
    """What one service has done and does now."""

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._requests = self._counter("requests", "Requests that ended, by how they did", "finish")
        self._refused = self._counter("refused", "Requests that were not taken, by status", "status")
        self._prompt = self._counter("prompt_tokens", "Tokens of prompts")
        self._generated = self._counter("generation_tokens", "Tokens of answers, end tokens included")
        self._forwards = self._counter("forwards", "Forwards that requests waited for")
        self._lookaheads = self._counter("lookaheads", "Those of them that evaluated branches")
        self._canvases = self._counter("canvases", "Canvases that were evaluated, branches included")
        self._positions = self._counter("canvas_positions", "Response positions of those canvases")
        self._committed = self._counter("committed_tokens", "Positions of canvases that were filled")
        self._first = self._histogram(
            "time_to_first_text_seconds", "From arrival to the first text of a stream"
        )
        self._seconds = self._histogram("request_seconds", "From arrival to the end of a request")
        self._registry.register(_Now(service))
        self._aliases = _Aliases(self._registry, service.name)

    def ended(self, request: Request, seconds: float, first_text_s: float | None) -> None:
        """Take note of a request that has ended."""
        how = request.finish or "error"
        self._requests.labels(how).inc()
        self._seconds.observe(seconds)
        if first_text_s is not None:
            self._first.observe(first_text_s)
        self._prompt.inc(request.canvas.prompt_len)
        self._generated.inc(len(request.new_tokens))
        self._forwards.inc(request.nfe)
        self._lookaheads.inc(request.nfe_lookahead)
        self._canvases.inc(request.canvases)
        self._positions.inc(request.positions)
        self._committed.inc(len(request.canvas.response) - request.canvas.n_masked)

    def refused(self, status: int) -> None:
        """Take note of a request that was not taken."""
        self._refused.labels(str(status)).inc()

    def text(self) -> bytes:
        """Return everything in Prometheus's format."""
        return generate_latest(self._aliases)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"ripple_{name}", about, labels, registry=self._registry)

    def _histogram(self, name: str, about: str) -> Histogram:
        return Histogram(f"ripple_{name}", about, buckets=SECONDS, registry=self._registry)


class _Now(Collector):
    """What holds at this moment, read when somebody asks."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges."""
        service = self._service
        for name, about, value in (
            ("requests_running", "Requests that are decoded", service.n_running),
            ("requests_waiting", "Requests that wait for their turn", service.n_waiting),
            ("most_rows", "Rows that a lookahead budget allows a request", service.engine.most_rows),
            ("healthy", "1 while requests are taken and decoded", int(service.is_well)),
        ):
            yield GaugeMetricFamily(f"ripple_{name}", about, value)


class _Aliases(Collector):
    """Every metric with the model's name as a label, and once more under vLLM's name where it has one."""

    def __init__(self, registry: CollectorRegistry, model_name: str) -> None:
        self._registry = registry
        self._label = {"model_name": model_name}

    def collect(self) -> Iterator[Metric]:
        """Yield both."""
        for metric in self._registry.collect():
            yield self._renamed(metric, metric.name)
            if (alias := ALIASES.get(metric.name)) is not None:
                yield self._renamed(metric, alias)

    def _renamed(self, metric: Metric, name: str) -> Metric:
        made = Metric(name, metric.documentation, metric.type)
        is_alias = name != metric.name
        values: dict[
            tuple[str, tuple[tuple[str, str], ...]], float
        ] = {}  # several of ours may be one of vLLM's
        for sample in metric.samples:
            if not sample.name.endswith("_created"):
                labels = _vllm_labels(sample.labels) if is_alias else sample.labels
                key = name + sample.name.removeprefix(metric.name), tuple(labels.items())
                values[key] = values.get(key, 0.0) + sample.value
        for (sample_name, pairs), value in values.items():
            made.add_sample(sample_name, dict(pairs) | self._label, value)
        return made


def _vllm_labels(labels: Mapping[str, str]) -> dict[str, str]:
    named = {k: v for k, v in labels.items() if k != "finish"}
    reason = {FINISHED_REASON: REASONS[labels["finish"]]} if "finish" in labels else {}
    return named | reason | {"engine": "0"}
