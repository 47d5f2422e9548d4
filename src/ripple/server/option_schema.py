"""The JSON schema of the object `ripple`: every option, and every field of every decoder and cache."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ripple.caches import CACHES, cache_plugins
from ripple.decoders import DECODERS, decoder_plugins
from ripple.fields import Field, Interval, fields_of
from ripple.options import Options
from ripple.server.schema import LONGEST_SPEC, STREAMS

Schema = dict[str, Any]

_TYPES = {int: "integer", float: "number", bool: "boolean"}  # values of all others are text


def option_schema() -> Schema:
    """Return the schema of what a request may say of its decoding; numbers and flags may be text."""
    decoders = DECODERS | decoder_plugins().classes
    caches = CACHES | cache_plugins().classes
    owners: dict[str, list[tuple[str, Field]]] = {}
    for owner, cls in {"": Options, **decoders, **caches}.items():
        for field in fields_of(cls).values():
            if field.kind is not Path:  # a request names no files
                owners.setdefault(field.name, []).append((owner, field))
    properties = {name: _property(owned) for name, owned in owners.items()}
    properties["decoder"]["description"] += f"; names: {', '.join(decoders)}"
    properties["cache"]["description"] += f"; names: {', '.join(caches)}"
    properties["stream"] = {"enum": [*STREAMS], "description": "what a stream carries: text, or frames, too"}
    return {
        "title": "RippleOptions", "type": "object", "additionalProperties": False, "properties": properties,
        "description": "How a request is decoded. Fields of a decoder or of a cache go with its name.",
    }  # fmt: skip


def _property(owned: list[tuple[str, Field]]) -> Schema:
    """Return the schema of one name, which several decoders may have."""
    schemas: list[Schema] = []
    owners: dict[str, list[str]] = {}  # by what the field means to them
    for owner, field in owned:
        if (schema := _of_field(field)) not in schemas:
            schemas.append(schema)
        owners.setdefault(field.about, []).append(owner)
    about = "; ".join(f"{', '.join(names)}: {about}".removeprefix(": ") for about, names in owners.items())
    return (schemas[0] if len(schemas) == 1 else {"anyOf": schemas}) | {"description": about}


def _of_field(field: Field) -> Schema:
    none = ["null"] if field.may_be_none else []
    if field.choices:
        return {"enum": [*field.choices, *([None] if field.may_be_none else [])]}
    if field.kind not in _TYPES:
        return {"type": ["string", *none], "maxLength": LONGEST_SPEC}
    bounds = {} if field.within is None else _bounds(field.within)
    return {"type": [_TYPES[field.kind], "string", *none], **bounds}


def _bounds(within: Interval) -> Schema:
    """Return the bounds of a number; they say nothing of text."""
    low = {"minimum" if within.has_low else "exclusiveMinimum": within.low}
    high = {"maximum" if within.has_high else "exclusiveMaximum": within.high}
    return {name: value for name, value in (low | high).items() if math.isfinite(value)}
