"""The model families by name. Adding one is a file in this folder and a row in `FAMILIES`."""

from __future__ import annotations

from ripple.models.families import dream, llada, llada2, nemotron, sdar
from ripple.models.families.family import CheckpointSizes, Family, ReleasedFormat

_ALL = (llada.FAMILY, dream.FAMILY, sdar.FAMILY, nemotron.FAMILY, llada2.FAMILY)
FAMILIES: dict[str, Family] = {family.name: family for family in _ALL}

__all__ = ["FAMILIES", "CheckpointSizes", "Family", "ReleasedFormat"]
