"""Every decoder by name. Adding one is a file in this folder and a row in `DECODERS`."""

from __future__ import annotations

import dataclasses
from typing import Any

from ripple.decoders.base import Decoder, Rule, SimpleRule
from ripple.decoders.confidence import Confidence
from ripple.decoders.default import Default
from ripple.decoders.eb import EB
from ripple.decoders.ete import Ete
from ripple.decoders.factor import Factor
from ripple.decoders.frechet import Frechet
from ripple.decoders.klass import Klass
from ripple.decoders.learn2pd import Learn2PD
from ripple.decoders.lopa import Lopa
from ripple.decoders.presets import PRESETS
from ripple.decoders.rps import RPS
from ripple.decoders.wino import Wino
from ripple.errors import unknown

DECODERS: dict[str, type[Decoder]] = {
    cls.name: cls for cls in (Default, Confidence, Factor, Frechet, Klass, EB, Learn2PD, Wino, Lopa, Ete, RPS)
}

__all__ = [
    "DECODERS", "EB", "PRESETS", "RPS", "Confidence", "Decoder", "Default", "Ete", "Factor",
    "Frechet", "Klass", "Learn2PD", "Lopa", "Rule", "SimpleRule", "Wino", "decoder",
]  # fmt: skip


def decoder(name: str, /, **fields: Any) -> Decoder:
    """Build a decoder by name (`rps`) or preset (`rps/dream`), with any of its fields changed.

    `standard`, RPS's commit rule, may be given as a name, a preset or a table with a `name` key.
    """
    if "/" in name:
        if name not in PRESETS:
            raise unknown("preset", name, PRESETS)
        start: Decoder = PRESETS[name]
    elif name in DECODERS:
        start = DECODERS[name]()
    else:
        raise unknown("decoder", name, DECODERS)
    known = {f.name for f in dataclasses.fields(start)}
    for field in fields:
        if field not in known:
            raise unknown(f"field of decoder {start.name!r},", field, known)
    standard = fields.get("standard")
    if isinstance(standard, str):
        fields["standard"] = decoder(standard)
    elif isinstance(standard, dict):
        inner = dict(standard)
        fields["standard"] = decoder(inner.pop("name", "confidence"), **inner)
    return dataclasses.replace(start, **fields)
