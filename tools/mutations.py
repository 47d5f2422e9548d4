"""Ways to damage an input: bytes, JSON values, words of a command line. Same random state, same damage."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

DEEP = "DEEP"  # stands for nesting that json.dumps itself could not write
MARKS = {DEEP: "[" * 20_000 + "]" * 20_000, "HUGE": "9" * 5000, "FAR": "1e999", "MINUS": "-0"}
STRANGE = (
    "", " ", "x", "0", "-1", "nan", "\ud800", "\0", "\x1b[2J", "\u202e", "é" * 40, "\U0001f40b", "..", "../x",
    "x" * 300, "x" * 70_000, "[MASK]", "<|endoftext|>", "{}", "%s%n", "{{7*7}}", "null", "a\nb", "true",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 255, 1000, 100_000, 2**24, 2**31, 2**53 + 1, 2**63, 2**64, 10**30,
    10**400, 0.5, -0.5, -0.0, 1.5, 1e-320, 1e15, 1e308, math.nan, math.inf, -math.inf, [], [[]], [None], [0],
    [-1], [0.5, "a"], [True, False], list(range(300)), {}, {"": None}, {"a": {"b": []}}, {"a": 1}, *MARKS,
    *STRANGE,
)  # fmt: skip
TOKENS = (  # that mean something in one of the formats
    b'"', b"\\", b"\\u", b"\\ud800", b"{", b"}", b"[", b"]", b",", b":", b"\n", b"\r\n", b"\0", b"\xff",
    b"\xef\xbb\xbf", b"null", b"NaN", b"-Infinity", b"1e999", b"--", b"=", b"%00", b"\xc3", b"\xed\xa0\x80",
    b"PAR1",
)  # fmt: skip


def damaged_bytes(data: bytes, rng: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Flip bits, cut, repeat, insert, overwrite or splice, one to four times."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, n = rng.randrange(len(data) + 1), rng.choice((1, 1, 2, 8, 100))
        before, behind = data[:at], data[at + n :]
        match rng.randrange(8):
            case 0 if behind:
                data = before + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
            case 1:
                data = before
            case 2:
                data = before + behind
            case 3:
                data = before + data[at : at + n] * rng.choice((2, 3, 50)) + behind
            case 4:
                data = before + rng.choice(TOKENS) + data[at:]
            case 5:
                data = before + rng.choice(TOKENS) + behind
            case 6 if others:
                other = rng.choice(others)
                data = before + other[rng.randrange(len(other) + 1) :]
            case _:
                data = before + rng.randbytes(n) + behind
    return data


def damaged_json(value: Any, rng: random.Random, others: Sequence[Any] = ()) -> bytes:
    """Replace, remove, add, rename, double or splice in values, one to three times, and write the JSON."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            break
        parent, key = rng.choice(places)
        match rng.randrange(9):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, dict):
                parent[_strange(rng)] = parent.pop(key)
            case 2 if isinstance(parent, dict):
                parent[_strange(rng)] = _value(rng)
            case 3 if isinstance(parent, list):
                new = copy.deepcopy(parent[key]) if rng.random() < 0.3 else _value(rng)
                parent.insert(rng.randrange(len(parent) + 1), new)
            case 4 if others:
                spliced = [inner[at] for inner, at in _places(rng.choice(others))] or [None]
                parent[key] = copy.deepcopy(rng.choice(spliced))
            case 5 | 6 if isinstance(parent[key], int | float):
                parent[key] = _near(parent[key], rng)
            case 7 if isinstance(parent[key], str):
                parent[key] = damaged_text(parent[key], rng)
            case _:
                parent[key] = _value(rng)
    text = _written(value if rng.random() < 0.97 else rng.choice((None, [value], *VALUES)), rng)
    return damaged_bytes(text, rng) if rng.random() < 0.1 else text


def damaged_text(text: str, rng: random.Random) -> str:
    """Change a few characters."""
    data = damaged_bytes(text.encode("utf-8", "surrogatepass"), rng)
    return data.decode("utf-8", rng.choice(("replace", "surrogateescape")))


def damaged_words(words: Sequence[str], rng: random.Random, known: Sequence[str]) -> list[str]:
    """Replace, remove, add, join, double, exchange or damage words, one to four times."""
    words = list(words)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(1, len(words) + 1)
        word = words[at] if at < len(words) else ""
        new = rng.choice((*known, *STRANGE)) if rng.random() < 0.7 else str(rng.choice(VALUES))
        match rng.randrange(7):
            case 0:
                words[at : at + 1] = []
            case 1:
                words[at : at + 1] = [new]
            case 2:
                words[at:at] = [new, str(rng.choice(VALUES))]
            case 3:
                words[at:at] = [f"{rng.choice(known)}={new}"]
            case 4:
                words[at:at] = [word]
            case 5:
                words[at : at + 1] = [damaged_text(word, rng)]
            case _:
                other = rng.randrange(1, len(words) + 1)
                words[at : at + 1], words[other : other + 1] = words[other : other + 1], words[at : at + 1]
    return [word.replace("\0", "0") for word in words]  # no system hands over a zero byte


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container inside a JSON value, itself included, with each of its keys."""
    waiting = [value]
    while waiting:
        parent = waiting.pop()
        keys = parent if isinstance(parent, dict) else range(len(parent)) if isinstance(parent, list) else ()
        for key in keys:
            yield parent, key
            waiting.append(parent[key])


def _value(rng: random.Random) -> Any:
    return copy.deepcopy(rng.choice(VALUES))


def _near(number: float, rng: random.Random) -> float:
    return rng.choice((number + 1, number - 1, -number, number * 2, number * 10**9, 1.5))


def _strange(rng: random.Random) -> str:
    return rng.choice(STRANGE) if rng.random() < 0.5 else rng.choice("abcdefgh") * rng.choice((1, 2, 30))


def _written(value: Any, rng: random.Random) -> bytes:
    """Write JSON, now and then with a key that is there twice or in another encoding."""
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    for mark, meant in MARKS.items():
        text = text.replace(f'"{mark}"', meant)
    dice = rng.random()
    if dice < 0.05 and text.startswith("{") and (colons := [i for i in range(len(text)) if text[i] == ":"]):
        key = text[: rng.choice(colons)].rpartition('"')[0].rpartition('"')[2]
        text = f'{{"{key}": {json.dumps(rng.choice((1, "a", None, [])))}, {text[1:]}'
    data = text.encode("utf-8", "surrogatepass")
    return text.encode("utf-16", "surrogatepass") if 0.05 < dice < 0.06 else data
