"""What the harness tells a model, as engine settings: `model_args` once, generation arguments per request.

Both are flat tables of plain values. A name is an engine setting, a field of the chosen decoder or a field of
the chosen cache; any other is an error that names the nearest.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from ripple.caches import cache as cache_named
from ripple.decoders import decoder as decoder_named
from ripple.engine.result import Settings
from ripple.errors import RippleError, unknown

Table = dict[str, Any]

_ENGINE: Table = {
    "length": int, "block": int, "lookahead": str, "seed": int, "temperature": float, "stop_at_end": bool,
}  # fmt: skip
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # the first one counts
# Ways of narrowing a sampled distribution, with the values that do nothing: sampling here is plain.
_FILTERS: dict[str, tuple[Any, ...]] = {"top_p": (1,), "top_k": (0, -1), "num_beams": (1,), "min_p": (0,)}
_PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def settings(table: Mapping[str, Any], also: Iterable[str] = ()) -> Settings:
    """Return the settings of a flat table such as `{"decoder": "rps", "lam": 0.2, "cache": "dual"}`.

    `also` are names that the caller has already taken out, to be told when another name is unknown.
    """
    given = dict(table)
    decoder = str(given.pop("decoder", Settings().decoder.name))
    cache = cache_named(str(given.pop("cache", "none")))
    decoder_kinds, cache_kinds = _kinds(type(decoder_named(decoder))), _kinds(type(cache))
    known = _ENGINE | cache_kinds | decoder_kinds
    for name, value in given.items():
        if name not in known:
            raise unknown("setting", name, [*known, "decoder", "cache", *also])
        given[name] = _typed(name, value, known[name])
    if "length" in given:
        given.setdefault("block", min(Settings.block, max(given["length"], 1)))
    fields = {name: given.pop(name) for name in decoder_kinds if name in given}
    kept = {name: given.pop(name) for name in cache_kinds if name in given}
    return Settings(decoder=decoder_named(decoder, **fields), cache=cache_named(cache, **kept), **given)


def of_request(arguments: Mapping[str, Any]) -> tuple[Table, tuple[str, ...]]:
    """Return a request's generation arguments as a table of settings, and its stop strings."""
    left = dict(arguments)
    until = left.pop("until", None) or ()
    stops = (until,) if isinstance(until, str) else tuple(str(stop) for stop in until)
    lengths = [value for name in _LENGTHS if (value := left.pop(name, None)) is not None]
    sampled = left.pop("do_sample", None)
    if sampled is False:
        left["temperature"] = 0.0
    is_greedy = not left.get("temperature", 0.0)
    for name, neutral in _FILTERS.items():
        value = left.pop(name, None)
        if value is not None and not is_greedy and value not in neutral:
            raise RippleError(
                f"Sampling with {name}={value} is not supported; leave it out or decode greedily."
            )
    return ({"length": int(lengths[0])} if lengths else {}) | left, stops


def _kinds(cls: type) -> dict[str, Any]:
    """Return the type of each field of a dataclass."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _typed(name: str, value: Any, kind: Any) -> Any:
    """Check a value against the type of its field; whole numbers are numbers."""
    kinds = typing.get_args(kind) or (kind,)
    if float in kinds and type(value) is int:
        return float(value)
    if type(value) in kinds or (value is None and types.NoneType in kinds):
        return value
    wanted = [_PLAIN[part] for part in kinds if part in _PLAIN]
    if not wanted:  # another decoder: `decoders` knows what may stand here
        return value
    raise RippleError(f"{name} must be {' or '.join(wanted)}, got {value!r}.")
