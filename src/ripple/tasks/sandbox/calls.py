"""How the judge uses what a program defines: calls across two pipes, one request, one reply.

The judge sees the program's functions and objects as `Remote`; what is done to them is done in the
program's process, and what comes back is plain data or another `Remote`. The program sees of the judge
only its arguments, and functions among them, which it may call and nothing else.
"""

from __future__ import annotations

import builtins
import operator
import os
import struct

from ripple.tasks.sandbox.wire import ValueReader, ValueWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MESSAGE_BYTES = 1 << 26  # a longer message ends the program
_ASK, _DONE, _RAISED = b"?", b"!", b"^"  # kinds of messages
_SENDERS, _RECEIVERS = b"H", b"M"  # whose object a handle stands for
OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda function, arguments, names: function(*arguments, **names),
    "getattr": getattr, "setattr": setattr, "iter": iter, "next": next, "len": len, "bool": bool, "str": str,
    "repr": repr, "getitem": operator.getitem, "setitem": operator.setitem, "contains": operator.contains,
}  # fmt: skip


class ProgramEnded(BaseException):
    """The other process is gone, or does not speak the protocol."""


class Peer:
    """One end of the two pipes; `operations` is what the other end may ask for."""

    def __init__(self, reader: int, writer: int, operations: dict[str, Callable[..., Any]] | None = None):
        self._reader, self._writer = reader, writer
        self._is_judge = operations is None
        self._operations = operations or {"call": self._call_back}
        self._kept: list[Any] = []  # objects that the other side has handles for
        self._numbers: dict[int, int] = {}  # id of an object -> its number
        self._encode = ValueWriter(self._handle).encode
        self._decode = ValueReader(self._resolve).decode
        self.ended = False

    def ask(self, operation: str, *arguments: Any) -> Any:
        """Have the other side do something, and return or raise what came of it."""
        self._send((_ASK, operation, list(arguments)))
        while True:
            kind, *rest = self._receive()
            if kind == _ASK:
                self._answer(*rest)
            elif kind == _DONE:
                value, changed = rest
                if operation == "call" and changed is not None:
                    _update(arguments[1], changed[1])
                return value
            else:
                error = _exception(*rest)
                if self._is_judge and operation != "next" and isinstance(error, StopIteration):
                    # As it is, it would end a loop of the tests early, as if all had been tested.
                    error = RuntimeError(f"StopIteration: {error}")
                raise error

    def serve(self) -> None:
        """Answer the other side until it closes its end."""
        while True:
            kind, *rest = self._receive()
            if kind == _ASK:
                self._answer(*rest)

    def close(self) -> None:
        """End the conversation: the other side's next read or write ends it too."""
        os.close(self._reader)
        os.close(self._writer)

    def _answer(self, operation: str, arguments: list[Any]) -> None:
        before = self._encode(arguments)
        try:
            if operation not in self._operations:
                raise TypeError(f"{operation!r} is not possible here")
            value = self._operations[operation](*arguments)
            changed = arguments if self._encode(arguments) != before else None
            self._send((_DONE, value, changed))
        except Exception as error:
            names = [kind.__name__ for kind in type(error).__mro__]
            self._send((_RAISED, names, str(error)[:1000]))

    def _call_back(self, function: Any, arguments: Any, names: Any) -> Any:
        """Call a function that was an argument; the program may not call anything else."""
        if not any(function is kept for kept in self._kept):
            raise TypeError("that is not a function of the judge's")
        return function(*arguments, **names)

    # -- messages ---------------------------------------------------------------------------------------

    def _send(self, message: tuple[Any, ...]) -> None:
        data = self._encode(message)
        if len(data) > MESSAGE_BYTES:
            raise ValueError("a value is too large")
        data = struct.pack("<I", len(data)) + data
        try:
            while data:
                data = data[os.write(self._writer, data) :]
        except OSError as error:
            self._end(error)

    def _receive(self) -> Any:
        (size,) = struct.unpack("<I", self._read(4))
        if size > MESSAGE_BYTES:
            self._end()
        try:
            return self._decode(self._read(size))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            self._end(error)

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = os.read(self._reader, min(size, 1 << 20))
            if not part:
                self._end()
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _end(self, error: Exception | None = None) -> Any:
        self.ended = True
        raise ProgramEnded from error

    # -- handles ----------------------------------------------------------------------------------------

    def _handle(self, value: Any) -> tuple[bytes, int] | None:
        if type(value) is Remote:
            return _RECEIVERS, object.__getattribute__(value, "_number")
        if self._is_judge and not callable(value):
            if hasattr(value, "__next__"):
                return None
            raise TypeError(f"a {type(value).__name__} cannot be handed to the program")
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._kept)
            self._kept.append(value)
        return _SENDERS, self._numbers[id(value)]

    def _resolve(self, kind: bytes, number: int) -> Any:
        if kind == _SENDERS:
            return Remote(self, number)
        if kind == _RECEIVERS and number < len(self._kept):
            return self._kept[number]
        raise ValueError("no such handle")


class Remote:
    """An object of the other process. It equals only itself, whatever its own `==` would say."""

    __slots__ = ("_number", "_peer")

    def __init__(self, peer: Peer, number: int):
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **names: Any) -> Any:
        """Call the function in its own process."""
        return self._peer.ask("call", self, arguments, names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._peer.ask("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._peer.ask("setattr", self, name, value)

    def __eq__(self, other: object) -> bool:
        return type(other) is Remote and other._peer is self._peer and other._number == self._number

    def __hash__(self) -> int:
        return hash(self._number)


def _forward(operation: str) -> Callable[..., Any]:
    return lambda self, *arguments: self._peer.ask(operation, self, *arguments)


for _name in ("iter", "next", "len", "bool", "str", "repr", "getitem", "setitem", "contains"):
    setattr(Remote, f"__{_name}__", _forward(_name))


def _update(arguments: Any, changed: Any) -> None:
    """Change the judge's arguments as the program's function changed its copies of them."""
    for old, new in zip(arguments, changed, strict=True):
        if type(old) is not type(new):
            continue
        for change in ("extend", "update"):  # lists and deques, or sets and dictionaries
            if type(old) is not Remote and hasattr(old, change):
                old.clear()
                getattr(old, change)(new)


def _exception(names: list[str], text: str) -> Exception:
    """Return the exception that was raised, or its nearest builtin ancestor."""
    for name in names:
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                return kind(text if name == names[0] else f"{names[0]}: {text}")
            except TypeError:  # it wants other arguments
                continue
    return RuntimeError(f"{names[0]}: {text}")
