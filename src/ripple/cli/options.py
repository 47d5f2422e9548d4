"""Options that several subcommands share: the model, and how prompts are decoded.

Every value may come from the command line or from a TOML file (`--config`); the command line wins. All
decoding options, with their help, are generated from the declared fields of `Options`, the decoders and the
caches, so a new field needs no line here.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ripple.caches import CACHES, Cache, cache, cache_plugins
from ripple.decoders import DECODERS, Decoder, decoder_class, decoder_plugins
from ripple.errors import RippleError, unknown
from ripple.fields import Field, fields_of, pairs, split_spec
from ripple.options import DECODER, Options, merged

Table = dict[str, Any]

MODEL = {  # option -> what it means
    "model": "embedded name, checkpoint folder or hub id (default tiny-llada)",
    "device": "cpu, cuda, cuda:N or auto (default auto)",
    "dtype": "float32, bfloat16, float16, fp8 or auto (default auto)",
    "memory_gb": "budget for stored keys (default: a share of the device's free memory)",
    "block_size": "positions per block of a model that attends block by block (default: as its folder says)",
}
_NOT_OPTIONS = ("decoder", "cache", "trace")  # have an option of another form


# -- declaring ------------------------------------------------------------------------------------------


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which model to load and where."""
    group = parser.add_argument_group("model")
    for name, about in MODEL.items():
        group.add_argument("--" + name.replace("_", "-"), metavar=name.upper(), help=about)


def add_options(parser: argparse.ArgumentParser, argv: Iterable[str] = (), with_decoder: bool = True) -> None:
    """Add every decoding option; the help explains the fields of the decoder and cache named in `argv`."""
    words = list(argv)
    group = parser.add_argument_group("decoding")
    group.add_argument("--config", metavar="FILE", help="TOML file with any of these options")
    own = fields_of(Options)
    if with_decoder:
        group.add_argument("--decoder", metavar="NAME", help=f"{own['decoder'].about} (default {DECODER})")
    group.add_argument("--cache", metavar="NAME", help=f"{own['cache'].about} (default none)")
    for name, field in own.items():
        if name not in _NOT_OPTIONS:
            add_field(group, field, field_help(field))
    if with_decoder:
        chosen = _named_class(words, "--decoder", DECODER)
        group = parser.add_argument_group(
            f"decoder {chosen.name}",
            "Name another with --decoder to see its fields; `ripple decoders` lists all.",
        )
        group.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="set any field")
        _add_fields(group, _decoder_classes(), chosen)
    chosen_cache = _named_class(words, "--cache", "none")
    group = parser.add_argument_group(f"cache {chosen_cache.name}")
    _add_fields(group, _cache_classes(), chosen_cache)


def _add_fields(group: Any, classes: Iterable[type], chosen: type) -> None:
    """Add the fields of all classes; only those of the chosen one are shown in the help."""
    shown = fields_of(chosen)
    every = {name: field for cls in classes for name, field in fields_of(cls).items()} | shown
    for name, field in every.items():
        add_field(group, field, field_help(field) if name in shown else argparse.SUPPRESS)


def add_field(group: Any, field: Field, about: str) -> None:
    """Add one declared field as an option; its value stays text until it is used."""
    if field.kind is bool:
        group.add_argument(field.option, action=argparse.BooleanOptionalAction, default=None, help=about)
    elif field.name == "stop":
        group.add_argument(field.option, action="append", metavar="TEXT", help=f"{about}; may be repeated")
    elif field.kind is Path:
        group.add_argument(field.option, metavar="FOLDER" if field.name == "folder" else "FILE", help=about)
    else:
        group.add_argument(field.option, metavar=field.name.upper(), help=about)


def field_help(field: Field) -> str:
    """Return a field's meaning, its allowed values and its default."""
    allowed = f"; {field.allowed}" if field.choices or field.within is not None else ""
    default = "" if field.default in ("", ()) else f" (default {_shown(field.default)})"
    return f"{field.about}{allowed}{default}".replace("%", "%%")


def _shown(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _named_class(words: list[str], option: str, default: str) -> type[Decoder] | type[Cache]:
    """Return the class that an option names on the command line, or the default one where it names none."""
    spec = default
    for word, after in zip(words, [*words[1:], ""], strict=False):
        if word == option or word.startswith(option + "="):
            spec = after if word == option else word.partition("=")[2]
    find = decoder_class if option == "--decoder" else _cache_class
    try:
        return find(spec)
    except RippleError:  # is told when the option is read
        return find(default)


def _cache_class(spec: str) -> type[Cache]:
    return type(cache(split_spec(spec)[0]))


def _decoder_classes() -> list[type[Decoder]]:
    return [*DECODERS.values(), *decoder_plugins().classes.values()]


def _cache_classes() -> list[type[Cache]]:
    return [*CACHES.values(), *cache_plugins().classes.values()]


# -- reading --------------------------------------------------------------------------------------------


def gather(args: argparse.Namespace, *extra: str) -> Table:
    """Merge the file named by `--config` with the command line, which wins; `extra` are a command's own keys.

    The table holds what was given and nothing else. The fields in a file belong to the file's decoder and are
    dropped when the command line names another; so are its cache's.
    """
    known = {*MODEL, *extra, *fields_of(Options), *_all_fields()}
    path = getattr(args, "config", None)
    table = read_config_file(path, known) if path else {}
    given = {name: value for name, value in vars(args).items() if name in known and value is not None}
    return merged(table, given) | pairs(getattr(args, "set", ()))


def read_config_file(path: str, known: Iterable[str]) -> Table:
    """Read a TOML file of options and check every key; values are checked where they are used."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RippleError(f"Cannot read the config {path}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RippleError(f"{path} is not TOML: {str(error).rstrip('.')}.") from None
    for name in table:
        if name not in set(known):
            raise unknown(f"key of {path},", name, known)
    return table


def options_of(table: Mapping[str, Any], *extra: str, trace: bool = False) -> Options:
    """Return the decoding options of a gathered table."""
    left = {name: value for name, value in table.items() if name not in (*MODEL, *extra)}
    return Options.of(left | ({"trace": True} if trace else {}), also=MODEL)


def load_arguments(table: Mapping[str, Any]) -> Table:
    """Return what `ripple.load` is told, but for the model's name."""
    arguments: Table = {name: str(table[name]) for name in ("device", "dtype") if name in table}
    numbers = (("memory_gb", float, "a number above 0"), ("block_size", int, "a whole number above 0"))
    for name, kind, allowed in numbers:
        if name in table:
            try:
                arguments[name] = kind(table[name])
            except (TypeError, ValueError):
                raise RippleError(f"{name} must be {allowed}, got {table[name]!r}.") from None
    return arguments


def _all_fields() -> set[str]:
    return {name for cls in (*_decoder_classes(), *_cache_classes()) for name in fields_of(cls)}
