"""Options that several subcommands share: the model, the engine's settings, the decoder and its fields.

Every value may come from the command line or from a TOML file (`--config`); the command line wins. Decoder
options are generated from the decoders' dataclass fields, so a new field needs no line here.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import tomllib
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ripple.caches import CACHES
from ripple.caches import cache as cache_named
from ripple.decoders import DECODERS, Decoder, decoder
from ripple.engine.result import LOOKAHEADS, Settings
from ripple.errors import RippleError, unknown


class Key(NamedTuple):
    """One setting: the type of its value and what it does."""

    kind: type
    help: str


MODEL_KEYS = {
    "model": Key(str, "embedded name, checkpoint folder or hub id (default tiny-llada)"),
    "device": Key(str, "cpu, cuda, cuda:N or auto (default auto)"),
    "dtype": Key(str, "float32, bfloat16, float16 or auto (default auto)"),
}
ENGINE_KEYS = {
    "length": Key(int, "response positions to decode (default 256)"),
    "block": Key(int, "positions per block (default 32, or the length if that is smaller)"),
    "cache": Key(str, f"{' | '.join(CACHES)}, with fields as in d2:masks=64 (default none)"),
    "refresh": Key(int, "recompute everything at every n-th forward of a block (default never; dkv: 8)"),
    "keep_prompt": Key(bool, "dual: compute the prompt once, open blocks with the response alone"),
    "stock_first": Key(bool, "commit a block's first token by force, as Fast-dLLM's cached Dream does"),
    "lookahead": Key(str, f"{' | '.join(LOOKAHEADS)} (default packed)"),
    "seed": Key(int, "seed of sampling and of random choices (default 0)"),
    "temperature": Key(float, "0 is greedy (default 0)"),
    "stop_at_end": Key(bool, "stop at the first settled end token instead of filling the canvas"),
    "stop": Key(list, "stop when the text contains this; may be repeated"),
}
DECODER_KEYS = {"decoder": Key(str, "name or preset; see `ripple decoders` (default rps)")}
_CACHE_KEYS = ("refresh", "keep_prompt", "stock_first")
_KIND_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


# -- declaring ------------------------------------------------------------------------------------------


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which model to load and where."""
    _add_keys(parser.add_argument_group("model"), MODEL_KEYS)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a prompt is decoded, and `--config`."""
    group = parser.add_argument_group("settings")
    group.add_argument("--config", metavar="FILE", help="TOML file with any of these settings")
    _add_keys(group, ENGINE_KEYS)


def add_decoder(parser: argparse.ArgumentParser) -> None:
    """Add `--decoder`, `--set`, and one option per decoder field."""
    group = parser.add_argument_group(
        "decoder", "Fields of the chosen decoder; a field that it does not have is an error."
    )
    _add_keys(group, DECODER_KEYS)
    group.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="set any field")
    for name, (kinds, owners) in _all_fields().items():
        option, owned = "--" + name.replace("_", "-"), f"of {', '.join(owners)}"
        if kinds == {bool}:
            group.add_argument(
                option, dest=f"field_{name}", action=argparse.BooleanOptionalAction, help=owned
            )
        else:
            group.add_argument(option, dest=f"field_{name}", metavar=name.upper(), help=owned)


def _add_keys(group: Any, keys: Mapping[str, Key]) -> None:
    for name, key in keys.items():
        option = "--" + name.replace("_", "-")
        if key.kind is bool:
            group.add_argument(option, action=argparse.BooleanOptionalAction, default=None, help=key.help)
        elif key.kind is list:
            group.add_argument(option, action="append", metavar="TEXT", help=key.help)
        else:
            group.add_argument(option, type=key.kind, metavar=name.upper(), help=key.help)


def _all_fields() -> dict[str, tuple[set[Any], list[str]]]:
    """Return every field of every decoder: its types and the decoders that have it."""
    found: dict[str, tuple[set[Any], list[str]]] = {}
    for name, cls in DECODERS.items():
        for field, kind in field_kinds(cls).items():
            kinds, owners = found.setdefault(field, (set(), []))
            kinds.add(kind)
            owners.append(name)
    return found


def field_kinds(cls: type[Decoder]) -> dict[str, Any]:
    """Return the type of each field of a decoder."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


# -- reading --------------------------------------------------------------------------------------------


def gather(args: argparse.Namespace, *extra_keys: str) -> dict[str, Any]:
    """Merge the file named by `--config` with the command line, which wins.

    The result holds what was given and nothing else; decoder fields are a table under `fields`. The fields
    in a file belong to the file's decoder and are dropped when the command line names another.
    """
    path = getattr(args, "config", None)
    has_decoder = hasattr(args, "decoder")
    table = read_config_file(path, has_decoder, extra_keys) if path else {}
    for name in (*MODEL_KEYS, *ENGINE_KEYS, *extra_keys):
        if (value := getattr(args, name, None)) is not None:
            table[name] = value
    if not has_decoder:
        return table
    if args.decoder is not None:
        if _stem(args.decoder) != _stem(table.get("decoder", Settings().decoder.name)):
            table.pop("fields", None)
        table["decoder"] = args.decoder
    fields = dict(table.get("fields", {}))
    fields |= _pairs(args.set)
    for name, value in vars(args).items():
        if name.startswith("field_") and value is not None:
            fields[name.removeprefix("field_")] = value
    table["fields"] = fields
    return table


def read_config_file(path: str, has_decoder: bool = True, extra_keys: Iterable[str] = ()) -> dict[str, Any]:
    """Read a TOML file of settings and check every key and type."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RippleError(f"Cannot read the config {path}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RippleError(f"{path} is not TOML: {str(error).rstrip('.')}.") from None
    keys = MODEL_KEYS | ENGINE_KEYS | {name: Key(list, "") for name in extra_keys}
    if has_decoder:
        keys = keys | DECODER_KEYS | {"fields": Key(dict, "")}
    for name, value in table.items():
        if name not in keys:
            raise unknown(f"key of {path},", name, keys)
        table[name] = _typed(f"{path}: {name}", value, keys[name].kind)
    return table


def settings(table: Mapping[str, Any], use: Decoder, trace: bool = False) -> Settings:
    """Return the engine settings of a gathered table for one decoder."""
    given = {name: table[name] for name in ENGINE_KEYS if name in table and name not in _CACHE_KEYS}
    fields = {name: table[name] for name in _CACHE_KEYS if name in table}
    given["cache"] = cache_named(given.pop("cache", "none"), **fields)
    given["stop"] = tuple(given.get("stop", ()))
    if "block" not in given and isinstance(length := given.get("length"), int):
        given["block"] = min(Settings.block, max(length, 1))
    return Settings(decoder=use, trace=trace, **given)


def chosen_decoder(table: Mapping[str, Any]) -> Decoder:
    """Return the decoder of a gathered table."""
    return build(table.get("decoder", Settings().decoder.name), table.get("fields", {}))


# -- decoders as text -----------------------------------------------------------------------------------


def build(spec: str, fields: Mapping[str, Any] | None = None) -> Decoder:
    """Build a decoder from `name`, `name/preset` or `name:field=value,field=value`, then change `fields`."""
    name, _, rest = spec.strip().partition(":")
    given = _pairs(rest.split(",")) if rest else {}
    start = decoder(name)
    kinds = field_kinds(type(start))
    values = {}
    for field, value in (given | dict(fields or {})).items():
        field = field.replace("-", "_")
        if field not in kinds:
            raise unknown(f"field of decoder {start.name!r},", field, kinds)
        values[field] = _field_value(f"{start.name}: {field}", value, kinds[field])
    return decoder(name, **values)


def split_specs(text: str) -> list[str]:
    """Split `default,rps:lam=0.2,r=0.3` at the commas that begin another decoder."""
    specs: list[str] = []
    for part in text.split(","):
        if specs and re.match(r"\s*[\w-]+\s*=", part):
            specs[-1] += "," + part
        else:
            specs.append(part.strip())
    return specs


def _field_value(where: str, value: Any, kind: Any) -> Any:
    """Convert one decoder field, given as text or as a TOML value."""
    if kind in _KIND_NAMES:
        return _typed(where, _from_text(where, value, kind) if isinstance(value, str) else value, kind)
    if isinstance(value, dict):  # another decoder, as a TOML table
        inner = dict(value)
        return build(inner.pop("name", "confidence"), inner)
    if isinstance(value, str):
        return None if value.lower() == "none" else build(value)
    raise RippleError(f"{where} must be a decoder such as 'frechet:delta=0.3', got {value!r}.")


def _from_text(where: str, text: str, kind: Any) -> Any:
    try:
        return _FLAGS[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise RippleError(f"{where} must be {_KIND_NAMES[kind]}, got {text!r}.") from None


def _typed(where: str, value: Any, kind: type) -> Any:
    """Check that a value has the type of its key; whole numbers are numbers, one text is a list of one."""
    if kind is list:
        items = [value] if isinstance(value, str) else value
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            return items
        raise RippleError(f"{where} must be a list of text, got {value!r}.")
    if kind is dict and not isinstance(value, dict):
        raise RippleError(f"{where} must be a table, got {value!r}.")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and is_number:
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise RippleError(f"{where} must be {_KIND_NAMES[kind]}, got {value!r}.")
    return value


def _pairs(items: Iterable[str]) -> dict[str, str]:
    """Parse `field=value` items."""
    found = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise RippleError(f"A field is set as FIELD=VALUE, got {item!r}.")
        found[name.strip().replace("-", "_")] = value.strip()
    return found


def _stem(spec: str) -> str:
    return re.split("[/:]", spec)[0]
