"""Predicates, maps and sources over integers: the parts that code problems are composed of."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

ITEM_NAMES = ("x", "n", "v", "num", "item", "value")


@dataclass(frozen=True, slots=True)
class Part:
    """A condition or an expression on `{x}`: its key, how it is said, and ways to write it."""

    key: str
    said: tuple[str, ...]  # for predicates a noun phrase; for maps with `{}` where the noun phrase goes
    code: tuple[str, ...]  # with `{x}`
    name: str = ""  # a short word for function names


def every() -> Part:
    """Return the predicate that keeps all numbers."""
    return Part("all", ("the numbers", "all numbers"), ("",), "all")


def _fixed_predicates() -> list[Part]:
    return [
        Part("even", ("the even numbers",), ("{x} % 2 == 0",), "even"),
        Part("odd", ("the odd numbers",), ("{x} % 2 == 1", "{x} % 2 != 0"), "odd"),
        Part("positive", ("the positive numbers",), ("{x} > 0",), "positive"),
        Part("negative", ("the negative numbers",), ("{x} < 0",), "negative"),
        Part("nonzero", ("the nonzero numbers", "the numbers other than zero"), ("{x} != 0",), "nonzero"),
    ]


FIXED = _fixed_predicates()


def predicate(rng: random.Random) -> Part:
    """Return a random condition on an integer."""
    if rng.random() < 0.3:
        return rng.choice(FIXED)
    kind = rng.choice(("above", "below", "least", "most", "multiple", "indivisible", "unequal", "between"))
    k = rng.randrange(1, 21)
    if kind == "above":
        return Part(
            f"above{k}", (f"the numbers greater than {k}", f"the numbers above {k}"), (f"{{x}} > {k}",), kind
        )
    if kind == "below":
        return Part(
            f"below{k}", (f"the numbers less than {k}", f"the numbers below {k}"), (f"{{x}} < {k}",), kind
        )
    if kind == "least":
        return Part(f"least{k}", (f"the numbers that are at least {k}",), (f"{{x}} >= {k}",), "at_least")
    if kind == "most":
        return Part(f"most{k}", (f"the numbers that are at most {k}",), (f"{{x}} <= {k}",), "at_most")
    if kind == "unequal":
        return Part(
            f"unequal{k}",
            (f"the numbers different from {k}", f"the numbers other than {k}"),
            (f"{{x}} != {k}",),
            "other",
        )
    if kind == "between":
        top = k + rng.randrange(3, 20)
        code = (f"{k} <= {{x}} <= {top}", f"{{x}} >= {k} and {{x}} <= {top}")
        return Part(
            f"between{k}-{top}",
            (f"the numbers from {k} to {top}", f"the numbers between {k} and {top}"),
            code,
            kind,
        )
    k = rng.randrange(3, 12)
    if kind == "multiple":
        said = (f"the multiples of {k}", f"the numbers divisible by {k}")
        return Part(f"multiple{k}", said, (f"{{x}} % {k} == 0",), "multiples")
    return Part(
        f"indivisible{k}", (f"the numbers not divisible by {k}",), (f"{{x}} % {k} != 0",), "indivisible"
    )


def same() -> Part:
    """Return the map that changes nothing."""
    return Part("id", ("{}",), ("{x}",), "")


MAPS: tuple[Callable[[int], Part], ...] = (
    lambda k: Part("square", ("the squares of {}",), ("{x} * {x}", "{x} ** 2"), "squares"),
    lambda k: Part("cube", ("the cubes of {}",), ("{x} ** 3", "{x} * {x} * {x}"), "cubes"),
    lambda k: Part("double", ("the doubles of {}", "twice {}"), ("2 * {x}", "{x} * 2"), "doubles"),
    lambda k: Part("negate", ("the negatives of {}",), ("-{x}",), "negated"),
    lambda k: Part("abs", ("the absolute values of {}",), ("abs({x})",), "abs"),
    lambda k: Part("half", ("{} halved and rounded down",), ("{x} // 2",), "halves"),
    lambda k: Part(f"times{k}", (f"{{}} multiplied by {k}",), (f"{{x}} * {k}", f"{k} * {{x}}"), "scaled"),
    lambda k: Part(f"plus{k}", (f"{{}} increased by {k}", f"{{}} plus {k}"), (f"{{x}} + {k}",), "raised"),
    lambda k: Part(f"minus{k}", (f"{{}} decreased by {k}", f"{{}} minus {k}"), (f"{{x}} - {k}",), "lowered"),
    lambda k: Part(f"mod{k}", (f"the remainders of {{}} modulo {k}",), (f"{{x}} % {k}",), "remainders"),
    lambda k: Part(
        f"sqplus{k}",
        (f"the squares of {{}} plus {k}",),
        (f"{{x}} * {{x}} + {k}", f"{{x}} ** 2 + {k}"),
        "shifted",
    ),
    lambda k: Part(
        f"dblplus{k}", (f"twice {{}} plus {k}",), (f"2 * {{x}} + {k}", f"{k} + 2 * {{x}}"), "lines"
    ),
)


def mapping(rng: random.Random) -> Part:
    """Return a random integer expression of one number."""
    return rng.choice(MAPS)(rng.randrange(2, 13))


def numbers(rng: random.Random, low: int = -9, high: int = 25, length: int = 0) -> list[int]:
    """Return a short random list of integers."""
    return [rng.randrange(low, high) for _ in range(length or rng.randrange(3, 6))]
