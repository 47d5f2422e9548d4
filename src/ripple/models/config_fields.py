"""A parsed `config.json`, with accessors that check a field and name it in every complaint."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import EllipsisType
from typing import Any

from ripple.errors import RippleError
from ripple.models.forward_fields import Allowed
from ripple.models.json_files import read_json, shown

MOST = 1 << 24  # of any width, length or id: far above every model, far below what overflows
MOST_LAYERS = 1000
MOST_BLOCK = 1024  # positions per block; released models have 4 to 64
MOST_POSITIONS = 1 << 20  # the rotary tables have a row for each


class ConfigFields:
    """The fields of one model folder. `block_size` is the caller's, for models that attend block by block."""

    def __init__(
        self, folder: Path, raw: dict[str, Any], block_size: int | None = None, within: str = ""
    ) -> None:
        self.folder = folder
        self.raw = raw
        self._block_size = block_size
        self._within = within  # the field that holds these ones, and a point

    def inner(self, field: str) -> ConfigFields:
        """Return the fields that a field holds; none where it is null or absent."""
        value = self.raw.get(field)
        if not isinstance(value, dict | None):
            raise self.malformed(field, "an object")
        return ConfigFields(self.folder, value or {}, within=f"{self._within}{field}.")

    @property
    def released_name(self) -> str:
        """The folder's name, or the repository's where the folder is a snapshot in the hub's cache."""
        folder = self.folder.resolve()
        if folder.parent.name == "snapshots":  # models--OWNER--NAME/snapshots/REVISION
            return folder.parents[1].name.rpartition("--")[2]
        return folder.name

    def check(self, implemented: Mapping[str, Allowed]) -> None:
        """Raise for the first field whose value is not implemented."""
        for field, allowed in implemented.items():
            value = self.raw.get(field)
            if isinstance(allowed, Mapping) and value is not None:
                self.inner(field).check(allowed)
            if isinstance(allowed, Mapping | EllipsisType):
                continue
            each = value if isinstance(allowed, list) and isinstance(value, list) else [value]
            if all(one in allowed for one in each):
                continue
            if field not in self.raw:
                raise self.missing(field)
            supported = " or ".join(shown(v) for v in allowed if v is not None) or "null"
            raise RippleError(
                f"config.json in {self.folder} says {self._within}{field} = {shown(value)}, which is not "
                f"implemented; supported: {supported}."
            )

    def integer(self, field: str, default: int | None = None, most: int = MOST) -> int:
        """Return a whole number; null and absent mean `default`, and without one they are an error."""
        value = self.raw.get(field)
        value = default if value is None else value
        if value is None:
            raise self.missing(field)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.malformed(field, "a whole number")
        if value > most:
            raise self.malformed(field, f"at most {most}")
        return value

    def size(self, field: str, default: int | None = None, most: int = MOST) -> int:
        """Return a whole number that counts something, so at least 1."""
        value = self.integer(field, default, most)
        if value == 0:
            raise self.malformed(field, "at least 1")
        return value

    def positive(self, field: str, default: float | None = None) -> float:
        """Return a finite number above 0; null and absent mean `default`, as for `integer`."""
        value = self.raw.get(field)
        value = default if value is None else value
        if value is None:
            raise self.missing(field)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise self.malformed(field, "a number above 0")
        try:
            return float(value)
        except OverflowError:  # a whole number with hundreds of digits
            raise self.malformed(field, "a number above 0") from None

    def of_rotation(self, field: str, default: float | None = None) -> float:
        """Return a number about rotary positions, which transformers 5 writes into rope_parameters."""
        inner = self.inner("rope_parameters")
        return (self if inner.raw.get(field) is None else inner).positive(field, default)

    def flag(self, field: str, default: bool) -> bool:
        """Return a flag that `check` has already verified to be true, false, null or absent."""
        value = self.raw.get(field)
        return default if value is None else bool(value)

    def end_ids(self, end_of_turn: str, otherwise: str = "") -> tuple[int, ...]:
        """Return the ids that end a response: end-of-text first, then the token that ends a turn.

        End-of-text may have another field, `otherwise`.
        """
        path, generation = self.folder / "config.json", self.folder / "generation_config.json"
        ids = list(_as_ids(self.raw.get("eos_token_id"), path))
        if os.path.exists(generation):
            ids += _as_ids(read_json(generation).get("eos_token_id"), generation)
        ids = ids or list(_as_ids(self.raw.get(otherwise), path))
        if not ids:
            raise self.missing("eos_token_id")
        ids += _added_token_id(self.folder, end_of_turn)
        return tuple(dict.fromkeys(ids))

    def block_size(self, trained: int | None) -> int:
        """Return the positions per block: the caller's, else config.json's, else `trained`.

        `trained` is what the family has, or what the model's name says; None: nothing is known.
        """
        if self.raw.get("block_size") is not None:
            trained = self.size("block_size", most=MOST_BLOCK)
        given, name = self._block_size, self.released_name
        if given is not None:
            if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MOST_BLOCK:
                raise RippleError(f"block_size must be a whole number of 1 to {MOST_BLOCK}, got {given!r}.")
            if trained not in (None, given):
                warnings.warn(f"{name} was trained with blocks of {trained}, not of {given}.", stacklevel=2)
            return given
        if trained is None:
            raise RippleError(
                f"Neither config.json in {self.folder} nor the name {name!r} says how many positions a block "
                "has; say it with block_size (--block-size)."
            )
        if not 1 <= trained <= MOST_BLOCK:
            raise RippleError(
                f"The name {name!r} says blocks of {trained}, but they have 1 to {MOST_BLOCK} positions; say "
                "the right number with block_size (--block-size)."
            )
        return trained

    def mask_id(self, usual: str) -> int:
        """Return the mask's id: config.json's, else the tokenizer's mask token's, else that of `usual`."""
        if self.raw.get("mask_token_id") is not None:
            return self.integer("mask_token_id")
        path = self.folder / "tokenizer_config.json"
        token = read_json(path).get("mask_token") if os.path.exists(path) else None
        token = token.get("content") if isinstance(token, dict) else token
        ids = _added_token_id(self.folder, token if isinstance(token, str) else usual)
        if not ids:
            raise RippleError(
                f"config.json in {self.folder} lacks the field 'mask_token_id', and no tokenizer file there "
                "names a mask token."
            )
        return ids[0]

    def missing(self, field: str) -> RippleError:
        """Return the complaint about a field that is not there."""
        return RippleError(f"config.json in {self.folder} lacks the field {self._within + field!r}.")

    def malformed(self, field: str, wanted: str) -> RippleError:
        """Return the complaint about a field's value."""
        value = shown(self.raw.get(field))
        name = self._within + field
        return RippleError(f"config.json in {self.folder} says {name} = {value}, but it must be {wanted}.")


def _as_ids(value: object, path: Path) -> Iterator[int]:
    """Yield the ids of an `eos_token_id`, which is a number, a list of numbers or null."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= MOST:
            yield item
        elif item is not None:
            raise RippleError(f"{path} says eos_token_id = {shown(value)}, but ids are whole numbers.")


def _added_token_id(folder: Path, token: str) -> list[int]:
    """Return [id] of an added token, or [] when no tokenizer file knows it; smallest file first."""
    for name in ("tokenizer_config.json", "added_tokens.json", "tokenizer.json"):
        path = folder / name
        if not os.path.exists(path):
            continue
        raw = read_json(path)
        try:
            if name == "tokenizer_config.json":
                added = raw.get("added_tokens_decoder", {})
                ids = [int(key) for key, entry in added.items() if entry.get("content") == token]
            elif name == "added_tokens.json":
                ids = [int(raw[token])] if token in raw else []
            else:
                added = raw.get("added_tokens", [])
                ids = [int(entry["id"]) for entry in added if entry.get("content") == token]
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            raise RippleError(f"{path} lists its added tokens in a way that cannot be read.") from None
        if ids:
            return ids[:1]
    return []
