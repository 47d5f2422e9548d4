"""Fields of decoders, caches and options: default, meaning and range, declared once.

`tau: float = param(0.9, "least confidence of a commit", within="(0, 1]")` declares a dataclass field. The
declaration is what checks a value, parses it from text, lists it in `--help` and writes it back as
`name:field=value,...`.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import re
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ripple.errors import RippleError, nearest, unknown

_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_KIND_NAMES: dict[type, str] = {
    int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path",
}  # fmt: skip
_INTERVAL = re.compile(r"([\[(])(-?inf|-?\d+(?:\.\d+)?), (inf|-?\d+(?:\.\d+)?)([\])])")


class Interval(NamedTuple):
    """A range of numbers, as written: `(0, 1]`."""

    text: str
    low: float
    high: float
    has_low: bool
    has_high: bool

    @classmethod
    def parse(cls, text: str) -> Interval:
        """Read `[low, high]`, with round brackets for an end that is left out."""
        match = _INTERVAL.fullmatch(text)
        if match is None:
            raise ValueError(f"not an interval: {text!r}")
        return cls(text, float(match[2]), float(match[3]), match[1] == "[", match[4] == "]")

    def holds(self, value: float) -> bool:
        """Say whether a number lies in the range; NaN lies in none."""
        above = value >= self.low if self.has_low else value > self.low
        below = value <= self.high if self.has_high else value < self.high
        return above and below

    @property
    def has_only_low(self) -> bool:
        """Whether the range has a lower end alone."""
        return self.high == math.inf and self.low != -math.inf


class Field(NamedTuple):
    """What is known about one field."""

    name: str
    kind: type  # int, float, bool, str, tuple, or the class of an object such as a decoder
    default: Any
    about: str
    within: Interval | None
    choices: tuple[str, ...]
    may_be_none: bool

    @property
    def option(self) -> str:
        """The field as a command-line option."""
        return "--" + self.name.replace("_", "-")

    @property
    def allowed(self) -> str:
        """The allowed values in a few words, for listings."""
        if self.choices:
            return " | ".join(self.choices)
        return self.within.text if self.within is not None else _KIND_NAMES.get(self.kind, self.kind.__name__)


def param(default: Any, about: str, *, within: str = "", choices: tuple[str, ...] = ()) -> Any:
    """Declare a dataclass field with its meaning and its allowed values."""
    interval = Interval.parse(within) if within else None
    return dataclasses.field(
        default=default, metadata={"about": about, "within": interval, "choices": choices}
    )


_known: dict[type, dict[str, Field]] = {}


def fields_of(cls: type) -> dict[str, Field]:
    """Return the declared fields of a dataclass by name."""
    if cls not in _known:
        _known[cls] = _read_fields(cls)
    return _known[cls]


def _read_fields(cls: type) -> dict[str, Field]:
    hints = typing.get_type_hints(cls)
    declared = {}
    for field in dataclasses.fields(cls):
        kind, may_be_none = _kind(hints[field.name])
        about, choices = field.metadata.get("about", ""), field.metadata.get("choices", ())
        within = field.metadata.get("within")
        declared[field.name] = Field(field.name, kind, field.default, about, within, choices, may_be_none)
    return declared


def _kind(hint: Any) -> tuple[type, bool]:
    """Return the class that a type hint names, and whether None is allowed beside it."""
    parts = [part for part in typing.get_args(hint) if isinstance(hint, types.UnionType)] or [hint]
    may_be_none = types.NoneType in parts
    kinds = [typing.get_origin(part) or part for part in parts if part is not types.NoneType]
    return next((kind for kind in kinds if kind is not str), kinds[0]), may_be_none


def check_fields(owner: str, made: Any) -> None:
    """Check every declared field of a new object; numbers become plain Python numbers."""
    for field in fields_of(type(made)).values():
        if field.kind in _KIND_NAMES:
            object.__setattr__(made, field.name, checked(owner, field, getattr(made, field.name)))


def checked(owner: str, field: Field, value: Any) -> Any:
    """Return a value of a number, flag or text field, or raise one sentence that says what is allowed."""
    if value is None and field.may_be_none:
        return None
    kind, where = field.kind, f"{owner}: {field.name}" if owner else field.name
    if kind is int and isinstance(value, numbers.Integral) and _is_number(value):
        value = int(value)
    elif kind is float and _is_number(value):
        value = float(value)
    elif kind is bool and _is_flag(value):
        value = bool(value)
    elif kind is Path and isinstance(value, str | Path):
        value = Path(value)
    elif not (kind is str and isinstance(value, str)):
        raise RippleError(f"{where} must {_phrase(field, value)}, got {value!r}.")
    if kind is float and not math.isfinite(value) and (field.within is None or field.within.has_only_low):
        raise RippleError(f"{where} must be a finite number, got {value!r}.")
    if field.within is not None and not field.within.holds(value):
        raise RippleError(f"{where} must {_phrase(field, value)}, got {value!r}.")
    if field.choices and value not in field.choices:
        names = ", ".join(field.choices)
        near = nearest(str(value), field.choices)
        hint = f" (did you mean {near!r}?)" if near else ""
        raise RippleError(f"{where} must be one of {names}{hint}, got {value!r}.")
    return value


def _phrase(field: Field, value: Any) -> str:
    """Return what a value must be, as the end of a sentence."""
    none, within = " or none" if field.may_be_none else "", field.within
    if within is None:
        return f"be {_KIND_NAMES[field.kind]}{none}"
    least = f"{'at least' if within.has_low else 'above'} {within.low:g}"
    if field.kind is int or not _is_number(value):
        range_ = f"in {within.text}"
        if within.has_only_low:
            range_ = f"of {least}" if within.has_low else least
        return f"be {_KIND_NAMES[field.kind]} {range_}{none}"
    return (f"be {least}" if within.has_only_low else f"lie in {within.text}") + none


def _is_flag(value: Any) -> bool:
    return type(value).__name__ in ("bool", "bool_")  # numpy's too


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not _is_flag(value)


# -- text ---------------------------------------------------------------------------------------------------


def from_text(owner: str, field: Field, text: str) -> Any:
    """Return a field's value from text, as it stands on a command line."""
    if field.may_be_none and text.lower() == "none":
        return None
    try:
        if field.kind is bool:
            return _FLAGS[text.lower()]
        return field.kind(text) if field.kind in (int, float, Path) else text
    except (KeyError, ValueError, OverflowError):
        where = f"{owner}: {field.name}" if owner else field.name
        raise RippleError(f"{where} must {_phrase(field, text)}, got {text!r}.") from None


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Split `name:field=value,...` into the name and the text of each field.

    A value in round brackets may hold commas, as in `rps:standard=(eb:gamma=0.2,proxy=margin)`.
    """
    name, _, rest = spec.strip().partition(":")
    return name.strip(), pairs(split_commas(rest)) if rest.strip() else {}


def pairs(items: Iterable[str]) -> dict[str, str]:
    """Read `field=value` items; dashes in field names are underscores."""
    read: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        name, value = name.strip().replace("-", "_"), value.strip()
        if not equals or not name:
            raise RippleError(f"A field is set as field=value, got {item!r}.")
        if name in read:
            raise RippleError(f"The field {name} is set twice: to {read[name]!r} and {value!r}.")
        read[name] = value[1:-1] if value[:1] == "(" and value[-1:] == ")" else value
    return read


def split_commas(text: str) -> list[str]:
    """Split at the commas that stand outside of brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def spec(name: str, made: Any) -> str:
    """Return an object as `name:field=value,...`, with the fields that differ from their defaults."""
    values = {field.name: getattr(made, field.name) for field in fields_of(type(made)).values()}
    defaults = {field.name: field.default for field in fields_of(type(made)).values()}
    return join_spec(name, {key: value for key, value in values.items() if value != defaults[key]})


def join_spec(name: str, values: Mapping[str, Any]) -> str:
    """Write `name:field=value,...`, the inverse of `split_spec`."""
    return f"{name}:{','.join(f'{key}={_shown(value)}' for key, value in values.items())}" if values else name


def _shown(value: Any) -> str:
    """Write a value the way `from_text` reads it."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):  # an inner decoder as a table with a name
        inner = dict(value)
        value = join_spec(str(inner.pop("name", "")), inner)
    text = value.describe() if hasattr(value, "describe") else str(value)
    return f"({text})" if "," in text else text


def merged(owner: str, start: Any, given: Mapping[str, Any]) -> Any:
    """Return `start` with plain fields changed; values may be text. Unknown names get the nearest one."""
    if not given:
        return start
    known = fields_of(type(start))
    values = {}
    for name, value in given.items():
        if name not in known:
            raise unknown(f"field of {owner},", name, known)
        field = known[name]
        is_text = isinstance(value, str) and field.kind in _KIND_NAMES
        values[name] = from_text(owner, field, value) if is_text else value
    return dataclasses.replace(start, **values)


def split_specs(text: str) -> list[str]:
    """Split `default,rps:lam=0.2,r=0.3` at the commas that begin another decoder."""
    specs: list[str] = []
    for part in split_commas(text):
        name = part.partition("=")[0]
        if specs and "=" in part and ":" not in name and "/" not in name:
            specs[-1] += "," + part
        else:
            specs.append(part)
    return specs
