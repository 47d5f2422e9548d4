"""Values as bytes, between a judge and a program that it does not trust.

Only plain values cross: what is decoded is an exact builtin or one of a few standard types, built anew from
plain parts. Nothing of the sender's code comes along, so an object whose `==` lies arrives as what it holds
or as a handle. Everything else crosses as a handle: a number under which its owner keeps it.
"""

from __future__ import annotations

import builtins
import importlib
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Standard types that are rebuilt from plain parts: "module.name" -> the arguments of its constructor.
_STANDARD: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "builtins.range": lambda value: (value.start, value.stop, value.step),
    "builtins.complex": lambda value: (value.real, value.imag),
    "builtins.bytearray": lambda value: (bytes(value),),
    "fractions.Fraction": lambda value: (value.numerator, value.denominator),
    "decimal.Decimal": lambda value: (str(value),),
    "collections.deque": lambda value: (list(value), value.maxlen),
    "collections.Counter": lambda value: (dict(value),),
    "collections.OrderedDict": lambda value: (list(value.items()),),
    "datetime.date": lambda value: value.__reduce__()[1],
    "datetime.time": lambda value: value.__reduce__()[1],
    "datetime.datetime": lambda value: value.__reduce__()[1],
    "datetime.timedelta": lambda value: value.__reduce__()[1],
}
# Builtin containers with the tag of each; a subclass crosses as its base.
_CONTAINERS: tuple[tuple[type, bytes], ...] = ((list, b"l"), (tuple, b"t"), (set, b"S"), (frozenset, b"z"))
_MAKE: dict[bytes, Callable[[list[Any]], Any]] = {b"l": list, b"t": tuple, b"S": set, b"z": frozenset}


class ValueWriter:
    """Writes values; `handle` returns the kind and number under which any other object is kept.

    For an iterator it may return None: then all its values cross.
    """

    def __init__(self, handle: Callable[[Any], tuple[bytes, int] | None]):
        self._handle = handle

    def encode(self, value: Any) -> bytes:
        """Return a value as bytes."""
        out: list[bytes] = []
        self._put(out, value)
        return b"".join(out)

    def _put(self, out: list[bytes], value: Any) -> None:
        kind = type(value)
        if value is None or value is True or value is False:
            out.append(b"n" if value is None else b"1" if value else b"0")
        elif issubclass(kind, int):
            n_bytes = int.bit_length(value) // 8 + 1
            self._sized(out, b"i", int.to_bytes(value, n_bytes, "little", signed=True))
        elif issubclass(kind, float):
            out.append(b"f" + struct.pack("<d", value))
        elif issubclass(kind, str):
            self._sized(out, b"s", str.encode(value, "utf-8", "surrogatepass"))
        elif issubclass(kind, bytes):
            self._sized(out, b"b", bytes(value))
        elif (name := f"{kind.__module__}.{kind.__qualname__}") in _STANDARD:
            self._sized(out, b"x", name.encode())
            self._put(out, tuple(_STANDARD[name](value)))
        elif issubclass(kind, dict):
            items = list(dict.items(value))
            out.append(b"d" + struct.pack("<I", len(items)))
            for key, item in items:
                self._put(out, key)
                self._put(out, item)
        elif _is_builtin_type(value):
            self._sized(out, b"T", value.__name__.encode())
        else:
            self._put_object(out, kind, value)

    def _put_object(self, out: list[bytes], kind: type, value: Any) -> None:
        for base, tag in _CONTAINERS:
            if issubclass(kind, base):
                items = list(base.__iter__(value))  # type: ignore[attr-defined]
                out.append(tag + struct.pack("<I", len(items)))
                for item in items:
                    self._put(out, item)
                return
        handle = self._handle(value)
        if handle is None:
            out.append(b"g")
            self._put(out, list(value))
        else:
            out.append(handle[0] + struct.pack("<I", handle[1]))

    def _sized(self, out: list[bytes], tag: bytes, data: bytes) -> None:
        out.append(tag + struct.pack("<I", len(data)) + data)


class ValueReader:
    """Reads values; `resolve` returns the object for a handle of a kind, or raises ValueError."""

    def __init__(self, resolve: Callable[[bytes, int], Any]):
        self._resolve = resolve

    def decode(self, data: bytes) -> Any:
        """Return the value that fills the bytes exactly, or raise ValueError."""
        value, end = self._take(data, 0)
        if end != len(data):
            raise ValueError("bytes are left over")
        return value

    def _take(self, data: bytes, at: int) -> tuple[Any, int]:
        tag, at = data[at : at + 1], at + 1
        if tag in (b"n", b"0", b"1"):
            return {b"n": None, b"0": False, b"1": True}[tag], at
        if tag == b"g":
            values, at = self._take(data, at)
            return iter(values), at
        if tag == b"f":
            return _unpack("<d", data, at)
        size, at = _unpack("<I", data, at)
        if tag in (b"i", b"s", b"b", b"x", b"T"):
            body, at = data[at : at + size], at + size
            if len(body) != size:
                raise ValueError("bytes are missing")
            if tag == b"x":
                return self._standard(data, at, body.decode())
            return _scalar(tag, body), at
        if tag == b"d":
            items = {}
            for _ in range(size):
                key, at = self._take(data, at)
                items[key], at = self._take(data, at)
            return items, at
        if tag in _MAKE:
            parts = []
            for _ in range(size):
                part, at = self._take(data, at)
                parts.append(part)
            return _MAKE[tag](parts), at
        return self._resolve(tag, size), at

    def _standard(self, data: bytes, at: int, name: str) -> tuple[Any, int]:
        if name not in _STANDARD:
            raise ValueError(f"no standard type {name!r}")
        arguments, at = self._take(data, at)
        module, _, kind = name.rpartition(".")
        return getattr(importlib.import_module(module), kind)(*arguments), at


def _is_builtin_type(value: Any) -> bool:
    return isinstance(value, type) and vars(builtins).get(value.__name__) is value


def _scalar(tag: bytes, body: bytes) -> Any:
    if tag == b"i":
        return int.from_bytes(body, "little", signed=True)
    if tag == b"b":
        return body
    text = body.decode("utf-8", "surrogatepass")
    if tag == b"s":
        return text
    kind = getattr(builtins, text, None)
    if not isinstance(kind, type):
        raise ValueError(f"no builtin type {text!r}")
    return kind


def _unpack(form: str, data: bytes, at: int) -> tuple[Any, int]:
    try:
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    except struct.error as error:
        raise ValueError("bytes are missing") from error
