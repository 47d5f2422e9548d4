"""`ripple serve`: one model behind OpenAI's interface."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ripple.cli import options, replicas
from ripple.cli.console import remark
from ripple.cli.running import open_engine
from ripple.cli.serving import default_options, model_name, server_options
from ripple.errors import RippleError
from ripple.fields import fields_of
from ripple.server.options import ServerOptions

HELP = "serve a model behind OpenAI's interface"


def add_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Declare the options of `ripple serve`."""
    parser.epilog = "Decoding options are those of requests that do not say otherwise."
    group = parser.add_argument_group("server")
    for field in fields_of(ServerOptions).values():
        options.add_field(group, field, options.field_help(field))
    replicas.add_replicas(parser)
    options.add_model(parser)
    options.add_options(parser, words)


def run(args: argparse.Namespace) -> int:
    """Load the model and serve it until a signal."""
    own = tuple(fields_of(ServerOptions))
    table = options.gather(args, *own)
    if args.ray:
        return replicas.run(args, table)
    for name in ("replicas", "gpus_per_replica", "address"):
        if getattr(args, name) is not None:
            raise RippleError(f"--{name.replace('_', '-')} goes with --ray.")
    limits = server_options(table)
    chosen = default_options(options.options_of({"stop_at_end": True} | table, *own), table)
    from ripple.server.run import run as run_service  # fails where the extra is not installed
    from ripple.server.service import Service

    with open_engine(table, max_batch=limits.max_batch, queue_limit=limits.queue) as engine:
        service = Service(engine, limits.name or model_name(table), chosen, limits)
        service.warm_up()
        run_service(service, lambda url: remark(f"listening at {url}"))
    return 0
