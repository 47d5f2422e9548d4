"""`ripple serve --ray`: the server's application on Ray Serve, and the same from a Serve config file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ripple.cli.console import remark
from ripple.cli.options import Table, load_arguments, options_of
from ripple.cli.running import DEFAULT_MODEL
from ripple.cli.serving import default_options, model_name, server_options
from ripple.cli.workers import make_cluster, range_of, shared_path
from ripple.fields import fields_of
from ripple.server.options import ServerOptions

if TYPE_CHECKING:
    from ripple.replicas.deployment import Plan

EVERYWHERE = "0.0.0.0"


def add_replicas(parser: argparse.ArgumentParser) -> None:
    """Add the options of `ripple serve` that are about replicas."""
    group = parser.add_argument_group("replicas", "One engine per replica; needs ripple-dllm[ray].")
    group.add_argument("--ray", action="store_true", help="serve from the replicas of a Ray cluster")
    group.add_argument("--replicas", metavar="N|MIN:MAX", help="with --ray: how many (default 1)")
    group.add_argument(
        "--gpus-per-replica", metavar="N", help="with --ray: GPUs of each (default 1 where there are any)"
    )
    group.add_argument(
        "--address", metavar="A", help="with --ray: local, auto or HOST:PORT (default local: here)"
    )


def run(args: argparse.Namespace, table: Table) -> int:
    """Serve from replicas until a signal."""
    from ripple.replicas.run import run as run_replicas

    cluster = make_cluster(args.replicas or "1", args.gpus_per_replica, args.address, "--replicas")
    plan = plan_of(table, cluster.least, cluster.most, 0.0)  # says what is wrong before anything starts

    def with_gpus(gpus: float) -> Plan:
        return plan_of(table, plan.least, plan.most, gpus)

    run_replicas(cluster, with_gpus, lambda url: remark(f"listening at {url} with replicas on Ray"))
    return 0


def plan_of(table: Table, least: int, most: int, gpus: float) -> Plan:
    """Return what every replica is, from a gathered table."""
    from ripple.replicas.deployment import Plan

    limits = server_options(table)
    chosen = default_options(options_of({"stop_at_end": True} | table, *fields_of(ServerOptions)), table)
    model = shared_path(str(table.get("model", DEFAULT_MODEL)))
    name = limits.name or model_name(table)
    return Plan(model, load_arguments(table), name, chosen, limits, least, most, gpus)


def application(args: dict[str, Any]) -> Any:
    """Return the Serve application of a config file: `import_path: ripple.cli.replicas:application`.

    `args` are options as `ripple serve --config` takes them, `replicas` and `gpus_per_replica`. The file says
    where Serve listens; without `host` a key is insisted on, or `auth: false`.
    """
    import ray

    table = {"host": EVERYWHERE} | args
    least, most = range_of(str(table.pop("replicas", "1")), "replicas")
    gpus = table.pop("gpus_per_replica", None)
    if gpus is None:
        gpus = float(ray.cluster_resources().get("GPU", 0) > 0)
    return plan_of(table, least, most, float(gpus)).deployment()
