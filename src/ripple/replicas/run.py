"""Starts replicas on a cluster and keeps them until a signal, or leaves them to a cluster that others run."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable

from ripple.errors import WorkFailed
from ripple.pool.cluster import LOCAL, Cluster
from ripple.pool.worker import first_line
from ripple.replicas import NAME
from ripple.replicas.deployment import Plan
from ripple.server.run import listen

MIDDLEWARE = {"RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "ripple.replicas.proxy.middlewares"}


def run(cluster: Cluster, plan: Callable[[float], Plan], ready: Callable[[str], None]) -> None:
    """Serve until a signal; on a cluster of others' the application stays there when we leave.

    `plan` is told how many GPUs each replica gets.
    """
    for name, value in MIDDLEWARE.items():
        os.environ.setdefault(name, value)
    is_ours = cluster.address == LOCAL
    with cluster.joined() as workers:
        from ray import serve

        logging.getLogger("ray.serve").setLevel(logging.CRITICAL)
        chosen = plan(workers.gpus)
        host, port = chosen.limits.host, chosen.limits.port
        if is_ours:
            with listen(chosen.limits) as listener:  # can we, and where
                port = listener.getsockname()[1]
        serve.start(
            proxy_location="HeadOnly" if is_ours else "EveryNode", http_options={"host": host, "port": port}
        )
        try:
            serve.run(chosen.deployment(), name=NAME, route_prefix="/")
        except RuntimeError as error:
            raise WorkFailed(f"The replicas do not start: {first_line(error)}.") from error
        ready(f"http://{host}:{port}")
        if is_ours:
            _wait_for_signal()
            serve.delete(NAME)  # what is being decoded ends first
            serve.shutdown()


def _wait_for_signal() -> None:
    stop = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in numbers}
    try:
        stop.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
