"""What a server is told, from a gathered table of options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ripple.cli import options
from ripple.cli.running import DEFAULT_MODEL
from ripple.errors import RippleError
from ripple.fields import fields_of, merged
from ripple.options import Options
from ripple.server.options import ServerOptions

KEY = "RIPPLE_API_KEY"


def server_options(table: options.Table) -> ServerOptions:
    """Return the server's own options of a gathered table; the key may come from the environment."""
    given: dict[str, Any] = {name: table[name] for name in fields_of(ServerOptions) if name in table}
    if not given.get("api_key") and os.environ.get(KEY):
        given["api_key"] = os.environ[KEY]
    return merged("", ServerOptions(), given)  # type: ignore[no-any-return]


def default_options(chosen: Options, table: options.Table) -> Options:
    """Return the options of requests, whose length must fit the server's own limit."""
    most = table.get("max_length")
    if most is not None and chosen.length is not None and chosen.length > int(most):
        raise RippleError(f"length must be at most max_length, {most}, got {chosen.length}.")
    return chosen


def model_name(table: options.Table) -> str:
    """Return what clients call the model: its embedded name, its hub id or its folder's name."""
    given = str(table.get("model", DEFAULT_MODEL))
    return Path(given).resolve().name if Path(given).is_dir() else given
