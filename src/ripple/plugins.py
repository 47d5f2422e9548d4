"""Decoders and caches of other packages, found through entry points.

A package registers a class in its `pyproject.toml`:

    [project.entry-points."ripple.decoders"]
    mine = "my_package:Mine"

Entry points are read when a name is not one of Ripple's own, or when everything is listed. A class that
cannot be loaded is reported by name and harms nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, NamedTuple, TypeVar

from ripple.errors import RippleError, unknown
from ripple.fields import fields_of

T = TypeVar("T")


class Plugins(NamedTuple):
    """What other packages offer under one entry-point group."""

    classes: dict[str, type[Any]]
    failures: dict[str, str]  # name -> why it could not be loaded


_loaded: dict[str, Plugins] = {}  # by group


def load_plugins(group: str, base: type[Any], own: tuple[str, ...]) -> Plugins:
    """Load every class of a group, once; `own` are the names that Ripple itself uses."""
    if group not in _loaded:
        _loaded[group] = _load(group, base, own)
    return _loaded[group]


def _load(group: str, base: type[Any], own: tuple[str, ...]) -> Plugins:
    classes: dict[str, type[Any]] = {}
    failures: dict[str, str] = {}
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        try:
            loaded = point.load()
        except Exception as error:  # somebody else's module raises whatever it likes
            failures[point.name] = f"{point.value} cannot be imported: {type(error).__name__}: {error}"
            continue
        reason = _fault(point.name, loaded, base, (*own, *classes))
        if reason is None:
            classes[point.name] = loaded
        else:
            failures[point.name] = f"{point.value} {reason}"
    return Plugins(classes, failures)


def find_class(kind: str, name: str, own: Mapping[str, type[T]], group: str, base: type[Any]) -> type[T]:
    """Return the class of that name, Ripple's own or another package's."""
    if name in own:
        return own[name]
    plugins = load_plugins(group, base, tuple(own))
    if name in plugins.classes:
        return plugins.classes[name]
    if name in plugins.failures:
        raise RippleError(f"The {kind} {name!r} is installed but broken: {plugins.failures[name]}.")
    raise unknown(kind, name, [*own, *plugins.classes])


def _fault(name: str, loaded: object, base: type[Any], taken: tuple[str, ...]) -> str | None:
    """Say why a loaded object cannot be used, or nothing."""
    if not (isinstance(loaded, type) and issubclass(loaded, base) and dataclasses.is_dataclass(loaded)):
        return f"is no dataclass derived from {base.__name__}"
    if name in taken:
        return f"wants the name {name!r}, which is taken"
    if getattr(loaded, "name", None) != name:
        return f"calls itself {getattr(loaded, 'name', None)!r} and is registered as {name!r}"
    if any(field.default is dataclasses.MISSING for field in dataclasses.fields(loaded)):
        return "has a field without a default"
    try:
        fields_of(loaded)
    except Exception as error:  # an annotation that names nothing
        return f"has a field that cannot be read: {error}"
    return None
