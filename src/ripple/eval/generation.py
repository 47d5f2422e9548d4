"""What the harness says of one request, its generation arguments, as a table of decoding options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ripple.errors import RippleError

_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # the first one counts
# Ways of narrowing a sampled distribution, with the values that do nothing: sampling here is plain.
_FILTERS: dict[str, tuple[Any, ...]] = {"top_p": (1,), "top_k": (0, -1), "num_beams": (1,), "min_p": (0,)}


def read_generation(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a request's arguments as a table for `Options.of`, and its stop strings."""
    left = dict(arguments)
    stops = _stop_strings(left.pop("until", None))
    lengths = [value for name in _LENGTHS if (value := left.pop(name, None)) is not None]
    if left.pop("do_sample", None) is False:
        left["temperature"] = 0.0
    is_greedy = left.get("temperature", 0.0) == 0
    for name, neutral in _FILTERS.items():
        value = left.pop(name, None)
        if value is not None and not is_greedy and value not in neutral:
            raise RippleError(
                f"Sampling with {name}={value} is not supported; leave it out or decode greedily."
            )
    return ({"length": lengths[0]} if lengths else {}) | left, stops


def _stop_strings(until: object) -> tuple[str, ...]:
    """Return `until` as a tuple; one string is a list of one."""
    if until is None or isinstance(until, str):
        return (until,) if until else ()
    if not isinstance(until, list | tuple):
        raise RippleError(f"until must be a string or a list of strings, got {until!r}.")
    return tuple(str(stop) for stop in until)
