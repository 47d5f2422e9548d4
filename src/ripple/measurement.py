"""A measurement: a frozen record of its options, and `run`, which returns plain numbers.

`ripple bench NAME` builds its options and its help from the fields.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from ripple.errors import RippleError
from ripple.fields import check_fields


@dataclass(frozen=True)
class Measurement(ABC):
    """Something that can be measured; its docstring is the help of its command."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        check_fields("", self)

    @abstractmethod
    def run(self) -> dict[str, Any]:
        """Measure, and return what is printed: plain values, and tables of them by name."""


def listed(text: str) -> list[str]:
    """Return the names of a list that is joined by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def whole_numbers(name: str, text: str, least: int = 0) -> list[int]:
    """Return the whole numbers of a list that is joined by commas."""
    try:
        numbers = [int(part) for part in listed(text)]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < least:
        raise RippleError(
            f"{name} must be whole numbers of at least {least} with commas between, got {text!r}."
        )
    return numbers
