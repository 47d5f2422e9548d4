"""How a server runs: its address, its key and its limits."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from ripple.errors import RippleError
from ripple.fields import check_fields, param

SPARE = 256  # connections: of clients that think, and of those to be told that the queue is full


@dataclass(frozen=True)
class ServerOptions:
    """What `ripple serve` is told beside the model and the decoding options."""

    host: str = param("127.0.0.1", "address to listen at")
    port: int = param(8000, "port to listen at; 0 is any free one", within="[0, 65535]")
    api_key: str | None = param(
        None, "what clients must send as a bearer token; none: RIPPLE_API_KEY, if set"
    )
    auth: bool = param(True, "insist on a key where other machines can connect")
    name: str | None = param(None, "the model's name for clients; none: as it was loaded")
    max_batch: int = param(64, "requests that are decoded at a time", within="[1, inf)")
    queue: int = param(
        256, "requests that may wait beside them; more are refused with 429", within="[1, inf)"
    )
    max_connections: int | None = param(
        None,
        f"connections at a time, more are refused with 503; none: {SPARE} more than twice the requests "
        "that may be decoded or wait",
        within="[1, inf)",
    )
    max_length: int | None = param(
        None, "most response positions of a request; none: what the model has", within="[1, inf)"
    )
    max_body: int = param(4 << 20, "most bytes of a request's body", within="[1, inf)")
    timeout: float = param(600.0, "seconds that a request may take", within="(0, inf)")
    drain: float = param(60.0, "seconds to finish requests after SIGTERM", within="[0, inf)")
    log_prompts: bool = param(False, "write prompts and answers into the access log")

    def __post_init__(self) -> None:
        check_fields("", self)
        if self.api_key is not None:  # one that was read from a file ends with its line
            object.__setattr__(self, "api_key", self.api_key.strip() or None)
        if self.auth and not self.api_key and not is_loopback(self.host):
            raise RippleError(
                f"Other machines can connect to {self.host}: set a key with --api-key or RIPPLE_API_KEY, or "
                "say --no-auth."
            )

    @property
    def most_connections(self) -> int:
        """Connections at a time."""
        return self.max_connections or 2 * (self.max_batch + self.queue) + SPARE


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
