"""Problems that filter, map and reduce integers from a list, a range or the digits of a number."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from ripple.tasks.generated.parts import ITEM_NAMES, Part, every, mapping, numbers, predicate, same
from ripple.tasks.generated.problems import Args, Problem

LIST_NAMES = ("nums", "xs", "values", "items", "numbers", "data")
NUMBER_NAMES = ("n", "limit", "number", "k")
_ACCS = ("total", "result", "out", "acc", "kept", "res")
_COUNT_SAID = ("how many there are of {}", "the count of {}", "the number of elements among {}")


@dataclass(frozen=True, slots=True)
class Flow:
    """The pieces of one pipeline as source text: for `x` in `over`, where `cond`, take `expr`."""

    x: str
    over: str
    cond: str  # empty: everything
    expr: str
    acc: str  # a name for what is accumulated

    def gen(self) -> str:
        """Return the inside of a comprehension."""
        return f"{self.expr} for {self.x} in {self.over}" + (f" if {self.cond}" if self.cond else "")

    def loop(self, inside: str) -> str:
        """Return a loop that runs the given line for each kept number."""
        if not self.cond:
            return f"for {self.x} in {self.over}:\n    {inside}"
        return f"for {self.x} in {self.over}:\n    if {self.cond}:\n        {inside}"


def _sum(f: Flow) -> tuple[str, ...]:
    return (
        f"return sum({f.gen()})",
        f"{f.acc} = 0\n{f.loop(f'{f.acc} += {f.expr}')}\nreturn {f.acc}",
        f"{f.acc} = [{f.gen()}]\nreturn sum({f.acc})",
    )


def _product(f: Flow) -> tuple[str, ...]:
    return (
        f"{f.acc} = 1\n{f.loop(f'{f.acc} *= {f.expr}')}\nreturn {f.acc}",
        f"{f.acc} = 1\nfor p in [{f.gen()}]:\n    {f.acc} *= p\nreturn {f.acc}",
    )


def _count(f: Flow) -> tuple[str, ...]:
    one = Flow(f.x, f.over, f.cond, "1", f.acc)
    return (
        f"return sum({one.gen()})",
        f"{f.acc} = 0\n{f.loop(f'{f.acc} += 1')}\nreturn {f.acc}",
        f"return len([{f.gen()}])",
    )


def _extreme(word: str, sign: str) -> Callable[[Flow], tuple[str, ...]]:
    def write(f: Flow) -> tuple[str, ...]:
        return (
            f"return {word}(({f.gen()}), default=0)",
            f"{f.acc} = [{f.gen()}]\nreturn {word}({f.acc}) if {f.acc} else 0",
            f"{f.acc} = [{f.gen()}]\nif not {f.acc}:\n    return 0\nreturn {word}({f.acc})",
            f"{f.acc} = sorted({f.gen()})\nreturn {f.acc}[{'-1' if sign == '>' else '0'}] if {f.acc} else 0",
        )

    return write


def _list(f: Flow) -> tuple[str, ...]:
    return (
        f"return [{f.gen()}]",
        f"{f.acc} = []\n{f.loop(f'{f.acc}.append({f.expr})')}\nreturn {f.acc}",
        f"return list({f.gen()})",
    )


def _then(before: str, after: str, *more: str) -> Callable[[Flow], tuple[str, ...]]:
    """Return a writer for lists that are reordered or deduplicated at the end."""

    def write(f: Flow) -> tuple[str, ...]:
        plain = f"{f.acc} = []\n{f.loop(f'{f.acc}.append({f.expr})')}\n"
        out = [f"return {before.format(f'[{f.gen()}]')}", f"{plain}return {before.format(f.acc)}"]
        out += [f"{f.acc} = [{f.gen()}]\n{line.format(f.acc)}\nreturn {after.format(f.acc)}" for line in more]
        return tuple(out)

    return write


def _has(f: Flow) -> tuple[str, ...]:
    return (
        f"return any({f.cond} for {f.x} in {f.over})",
        f"{f.loop('return True')}\nreturn False",
        f"return len([{f.gen()}]) > 0",
    )


@dataclass(frozen=True, slots=True)
class Reduce:
    """How the kept numbers become the result."""

    key: str
    said: tuple[str, ...]  # `{}`: the noun phrase
    returns: str
    write: Callable[[Flow], tuple[str, ...]]
    maps: bool = True  # whether a map comes before
    filters: bool = False  # whether a condition is needed


REDUCES = (
    Reduce("sum", ("the sum of {}", "the total of {}"), "int", _sum),
    Reduce("product", ("the product of {}",), "int", _product),
    Reduce("count", _COUNT_SAID, "int", _count, False, True),
    Reduce(
        "max",
        ("the largest of {}, or 0 if there are none", "the maximum of {}, or 0 if there are none"),
        "int",
        _extreme("max", ">"),
    ),
    Reduce(
        "min",
        ("the smallest of {}, or 0 if there are none", "the minimum of {}, or 0 if there are none"),
        "int",
        _extreme("min", "<"),
    ),
    Reduce("list", ("a list of {}", "{} as a list"), "list[int]", _list),
    Reduce(
        "sorted",
        ("a sorted list of {}", "{} in ascending order"),
        "list[int]",
        _then("sorted({})", "{}", "{}.sort()"),
    ),
    Reduce(
        "descending",
        ("{} in descending order", "a list of {} from largest to smallest"),
        "list[int]",
        _then("sorted({}, reverse=True)", "{}", "{}.sort(reverse=True)"),
    ),
    Reduce(
        "reversed",
        ("{} in reverse order", "a reversed list of {}"),
        "list[int]",
        _then("{}[::-1]", "{}", "{}.reverse()"),
    ),
    Reduce(
        "distinct",
        ("how many distinct values are among {}", "the number of different values among {}"),
        "int",
        _then("len(set({}))", "len({})", "{0} = set({0})"),
    ),
    Reduce(
        "unique",
        ("a sorted list of {} without duplicates", "{} sorted and without repeats"),
        "list[int]",
        _then("sorted(set({}))", "sorted({})", "{0} = set({0})"),
    ),
    Reduce(
        "has",
        ("True if any of {} are there, else False", "whether {} occur at all"),
        "bool",
        _has,
        False,
        True,
    ),
)


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline over a named source: what it is, how it is said and written."""

    key: str
    short: str  # the reduce, for names
    name: str
    phrase: str  # `{0}`: the source
    returns: str
    bodies: tuple[str, ...]


def stage(rng: random.Random, source: str, param: str, acc: str) -> Stage:
    """Return a random filter, map and reduce over one source."""
    red = rng.choice(REDUCES)
    if red.key == "product" and source == "range":
        red = REDUCES[0]  # products over long ranges are huge numbers
    pred = predicate(rng) if red.filters or rng.random() < 0.75 else every()
    while source != "list" and pred.key == "negative":
        pred = predicate(rng)
    step = mapping(rng) if red.maps and rng.random() < 0.7 else same()
    where = {"list": "in {0}", "range": "from 1 to {0}", "digits": "among the digits of {0}"}[source]
    if source == "range" and pred.key.startswith("between"):
        where = "in the range 1 to {0}"
    return Stage(
        key=f"{source}|{pred.key}|{step.key}|{red.key}",
        short=red.key,
        name=_name(rng, red, pred, step),
        phrase=rng.choice(red.said).replace(
            "{}", rng.choice(step.said).format(f"{rng.choice(pred.said)} {where}")
        ),
        returns=red.returns,
        bodies=_bodies(rng, source, param, acc, pred, step, red),
    )


def pipeline(rng: random.Random) -> Problem:
    """Return a problem that is one pipeline over a list, a range or digits."""
    source = rng.choice(("list", "list", "range", "digits"))
    param = rng.choice(LIST_NAMES if source == "list" else NUMBER_NAMES)
    one = stage(rng, source, param, rng.choice(_ACCS))
    return Problem(
        kind=f"{source}-{one.short}",
        key=one.key,
        name=one.name,
        params=((param, "list[int]" if source == "list" else "int"),),
        returns=one.returns,
        phrase=one.phrase,
        nouns=({"list": "a list of integers", "range": "n", "digits": "a number"}[source],),
        bodies=one.bodies,
        inputs=_inputs(rng, source),
    )


def _name(rng: random.Random, red: Reduce, pred: Part, step: Part) -> str:
    words = [red.key, *([pred.name] if pred.name != "all" else []), *([step.name] if step.name else [])]
    if len(words) == 1:
        words.append("all")
    return "_".join(words[: rng.choice((2, 3))])


def _bodies(
    rng: random.Random, source: str, param: str, acc: str, pred: Part, step: Part, red: Reduce
) -> tuple[str, ...]:
    x = rng.choice([name for name in ITEM_NAMES if name != param])
    code = rng.choice(pred.code).format(x=x)
    over = {"list": param, "range": f"range(1, {param} + 1)", "digits": "digits"}[source]
    flow = Flow(x, over, code, rng.choice(step.code).format(x=x), acc)
    bodies = red.write(flow)
    if source == "digits":
        cut = rng.choice(
            (f"digits = [int(d) for d in str({param})]", f"digits = list(map(int, str({param})))")
        )
        bodies = tuple(f"{cut}\n{body}" for body in bodies)
    return bodies


def _inputs(rng: random.Random, source: str) -> tuple[Args, ...]:
    if source == "list":
        return (*((numbers(rng),) for _ in range(5)), ([],), ([7],), ([4, 4, -4, 12, 30, 3],))
    if source == "range":
        return (*((rng.randrange(4, 25),) for _ in range(4)), (1,), (0,), (30,))
    return (*((rng.randrange(100, 10000),) for _ in range(4)), (0,), (7,), (90210,))
