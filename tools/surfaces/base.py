"""What reads from outside: proper inputs, a way to damage them, and a way to feed them."""

from __future__ import annotations

import os
import random
import unicodedata
from pathlib import Path
from typing import Any, ClassVar

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may leave this machine

from ripple.errors import LONGEST, RippleError

SMALL: dict[str, Any] = {"d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 8, "vocab_size": 330}
MOST = 6 * LONGEST  # characters of a sentence, where each had to be escaped
RESULTS = Path(__file__).parents[2] / "results"
Json = dict[str, Any]


class Unclean(Exception):
    """An input was neither accepted nor cleanly refused."""


def check_sentence(text: str) -> None:
    """Raise unless this is one sentence that any terminal can print."""
    is_plain = not any(unicodedata.category(c)[0] == "C" or c in "\u2028\u2029" for c in text)
    if not (is_plain and 0 < len(text) <= MOST and text.endswith((".", "?"))):
        raise Unclean(f"not one clean sentence: {text!r:.300}")


class Surface:
    """Something that reads from outside."""

    name: ClassVar[str]
    n: ClassVar[int]  # inputs of a whole run

    def __init__(self, folder: Path) -> None:
        """Make proper inputs in a folder, which is where inputs are fed, too."""
        self.folder = folder

    def __enter__(self) -> Surface:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what was started."""

    def case(self, rng: random.Random) -> Any:
        """Return a damaged input."""
        raise NotImplementedError

    def feed(self, case: Any) -> bool:
        """Feed an input; return whether it was accepted, and raise unless all was clean."""
        try:
            self.read(case)
        except RippleError as error:
            check_sentence(str(error))
            return False
        return True

    def read(self, case: Any) -> None:
        """Read an input as the library does, and use what it holds."""
        raise NotImplementedError
