"""Decoders by name. Adding one is a file in this folder and a row in `DECODERS`.

A package of your own can register one through the entry-point group `ripple.decoders` instead.
"""

from __future__ import annotations

from typing import Any

from ripple.decoders.base import Decoder, Rule, Setup, SimpleRule
from ripple.decoders.confidence import Confidence
from ripple.decoders.default import Default
from ripple.decoders.eb import EB
from ripple.decoders.edit import Edit
from ripple.decoders.ete import Ete
from ripple.decoders.factor import Factor
from ripple.decoders.frechet import Frechet
from ripple.decoders.glide import Glide
from ripple.decoders.klass import Klass
from ripple.decoders.learn2pd import Learn2PD
from ripple.decoders.lopa import Lopa
from ripple.decoders.presets import PRESETS
from ripple.decoders.rps import RPS
from ripple.decoders.wino import Wino
from ripple.errors import RippleError, unknown
from ripple.fields import fields_of, merged, split_spec
from ripple.plugins import Plugins, find_class, load_plugins

DECODERS: dict[str, type[Decoder]] = {
    cls.name: cls
    for cls in (Default, Confidence, Factor, Frechet, Klass, EB, Learn2PD, Wino, Edit, Lopa, Ete, RPS, Glide)
}
GROUP = "ripple.decoders"

__all__ = [
    "DECODERS", "EB", "PRESETS", "RPS", "Confidence", "Decoder", "Default", "Edit", "Ete",
    "Factor", "Frechet", "Glide", "Klass", "Learn2PD", "Lopa", "Rule", "Setup", "SimpleRule", "Wino",
    "decoder", "decoder_class", "decoder_plugins", "family_decoder",
]  # fmt: skip


def decoder(spec: str | Decoder, /, **fields: Any) -> Decoder:
    """Return a decoder with any of its fields changed.

    `spec` is a decoder, a name (`rps`), a preset (`rps/dream`), or either with fields (`rps:lam=0.2,r=0.3`).
    `standard`, RPS's commit rule, may be given in the same ways, or as a table with a `name` key.
    """
    return family_decoder(spec, "", **fields)


def family_decoder(spec: str | Decoder, family: str, /, **fields: Any) -> Decoder:
    """Return the decoder that a spec means on a model family: a bare name is the family's preset."""
    if isinstance(spec, Decoder):
        start = spec
    elif isinstance(spec, str):
        name, given = split_spec(spec)
        fields = given | fields
        start = _start(name, family)
    else:
        hint = f"; write {spec.__name__}()" if isinstance(spec, type) else ""
        raise RippleError(f"decoder must be a name such as 'rps' or a decoder object, got {spec!r}{hint}.")
    known = fields_of(type(start))
    for name, value in fields.items():
        if name in known and issubclass(known[name].kind, Decoder):
            fields[name] = _inner(start.name, name, value, family)
    return merged(start.name, start, fields)  # type: ignore[no-any-return]


def decoder_class(name: str) -> type[Decoder]:
    """Return the class of a decoder, given its name, a preset or a spec."""
    return find_class("decoder", split_spec(name)[0].partition("/")[0], DECODERS, GROUP, Decoder)


def decoder_plugins() -> Plugins:
    """Return the decoders that other packages offer."""
    return load_plugins(GROUP, Decoder, tuple(DECODERS))


def _start(name: str, family: str) -> Decoder:
    if "/" in name and name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    preset = PRESETS.get(name) or PRESETS.get(f"{name}/{family}")
    return preset if preset is not None else decoder_class(name)()


def _inner(owner: str, field: str, value: Any, family: str) -> Any:
    """Return a decoder that is a field of another, given as an object, a spec, a table or nothing."""
    if value is None or (isinstance(value, str) and value.lower() == "none"):
        return None
    if isinstance(value, dict):
        table = dict(value)
        return family_decoder(table.pop("name", "confidence"), family, **table)
    if isinstance(value, str | Decoder):
        return family_decoder(value, family)
    raise RippleError(f"{owner}: {field} must be a decoder such as 'frechet:delta=0.3', got {value!r}.")
