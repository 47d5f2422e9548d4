"""What a spec may name, as plain facts: decoders and caches, Ripple's own and those of other packages."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from ripple.decoders import Decoder
from ripple.errors import unknown
from ripple.fields import Field, fields_of
from ripple.plugins import Plugins

Facts = dict[str, Any]


def listed(
    kind: str, own: Mapping[str, type], plugins: Plugins, presets: Mapping[str, Decoder], names: Iterable[str]
) -> Facts:
    """Return what there is to know about the classes named, or about all of them and the broken ones."""
    known = {**own, **plugins.classes}
    wanted = list(names)
    for name in wanted:
        if name not in known and name not in plugins.failures:
            raise unknown(kind, name, [*known, *plugins.failures])
    return {
        f"{kind}s": [_describe(cls, presets) for name, cls in known.items() if not wanted or name in wanted],
        "broken": {name: why for name, why in plugins.failures.items() if not wanted or name in wanted},
    }


def _describe(cls: type[Any], presets: Mapping[str, Decoder]) -> Facts:
    return {
        "name": cls.name,
        "about": (inspect.getdoc(cls) or "").split("\n")[0],
        "paper": getattr(cls, "paper", ""),
        "package": cls.__module__.partition(".")[0],
        "fields": [field_facts(field) for field in fields_of(cls).values()],
        "presets": {name: one.describe() for name, one in presets.items() if name.split("/")[0] == cls.name},
    }


def field_facts(field: Field) -> Facts:
    """Return what there is to know about one field."""
    is_decoder = isinstance(field.kind, type) and issubclass(field.kind, Decoder)
    default = field.default.describe() if isinstance(field.default, Decoder) else field.default
    return {
        "name": field.name,
        "option": field.option,
        "type": "decoder" if is_decoder else field.kind.__name__,
        "default": default,
        "allowed": ("a decoder" if is_decoder else field.allowed) + (" or none" if field.may_be_none else ""),
        "about": field.about,
    }
