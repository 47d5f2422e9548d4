"""Problems with pairs of lists, dictionaries, case distinctions and loops with a stopping rule."""

from __future__ import annotations

import random

from ripple.tasks.generated.parts import Part, mapping, numbers, predicate, same
from ripple.tasks.generated.problems import Problem
from ripple.tasks.generated.text import listed

LABELS = listed("low mid high small big cold warm hot near far red green blue ok bad")
_PAIRS = (("a", "b"), ("x", "y"), ("p", "q"), ("u", "v"))
_PAIR_MAPS = (
    Part("sum", ("the sums",), ("{a} + {b}",), "sums"),
    Part("product", ("the products",), ("{a} * {b}",), "products"),
    Part("difference", ("the differences",), ("{a} - {b}",), "differences"),
    Part("gap", ("the absolute differences",), ("abs({a} - {b})",), "gaps"),
    Part("larger", ("the larger numbers",), ("max({a}, {b})",), "larger"),
    Part("smaller", ("the smaller numbers",), ("min({a}, {b})",), "smaller"),
)


def _pair_predicate(rng: random.Random) -> Part:
    k = rng.randrange(2, 16)
    return rng.choice((
        Part("all", ("",), ("",)),
        Part("gt", (" where the first number is larger",), ("{a} > {b}",)),
        Part("lt", (" where the first number is smaller",), ("{a} < {b}",)),
        Part("ne", (" where the two numbers differ",), ("{a} != {b}",)),
        Part(f"sum{k}", (f" where the sum is greater than {k}",), (f"{{a}} + {{b}} > {k}",)),
        Part(f"first{k}", (f" where the first number is greater than {k}",), (f"{{a}} > {k}",)),
        Part(f"second{k}", (f" where the second number is greater than {k}",), (f"{{b}} > {k}",)),
        Part(f"both{k}", (f" where both numbers are greater than {k}",), (f"{{a}} > {k} and {{b}} > {k}",)),
    ))  # fmt: skip


def pairs(rng: random.Random) -> Problem:
    """Return a problem about two lists taken side by side."""
    pred, step = _pair_predicate(rng), rng.choice(_PAIR_MAPS)
    one, two = rng.choice((("xs", "ys"), ("a", "b"), ("left", "right"), ("first", "second")))
    a, b = rng.choice([p for p in _PAIRS if p[0] != one])
    cond, expr = pred.code[0].format(a=a, b=b), step.code[0].format(a=a, b=b)
    zipped = f"{a}, {b} in zip({one}, {two})"
    gen = f"{expr} for {zipped}" + (f" if {cond}" if cond else "")
    acc = rng.choice(("out", "result", "res", "total"))
    head = f"for {zipped}:\n" + (f"    if {cond}:\n        " if cond else "    ")
    red = rng.choice(("list", "sum", "max"))
    bodies = {
        "list": (f"return [{gen}]", f"{acc} = []\n{head}{acc}.append({expr})\nreturn {acc}"),
        "sum": (f"return sum({gen})", f"{acc} = 0\n{head}{acc} += {expr}\nreturn {acc}"),
        "max": (f"return max(({gen}), default=0)", f"{acc} = [{gen}]\nreturn max({acc}) if {acc} else 0"),
    }[red]
    said = {
        "list": "a list of {}",
        "sum": "the sum of {}",
        "max": "the largest of {}, or 0 if there are none",
    }[red]
    made = [numbers(rng, length=4) for _ in range(8)]
    return Problem(
        kind=f"pairs-{red}",
        key=f"pairs|{pred.key}|{step.key}|{red}",
        name=f"{red}_{step.name}",
        params=((one, "list[int]"), (two, "list[int]")),
        returns="list[int]" if red == "list" else "int",
        phrase=said.format(f"{step.said[0]} of the pairs from {{0}} and {{1}}{pred.said[0]}"),
        nouns=("one list", "another list"),
        bodies=bodies,
        inputs=(*((made[i], made[i + 1]) for i in range(0, 8, 2)), ([], []), ([3, 20, 5], [9, 18, 5])),
    )


def dictionary(rng: random.Random) -> Problem:
    """Return a problem about the values of a dictionary."""
    pred, step = predicate(rng), mapping(rng) if rng.random() < 0.6 else same()
    param = rng.choice(("d", "scores", "table", "prices", "counts"))
    k, v = rng.choice((("k", "v"), ("key", "value"), ("name", "amount")))
    cond, expr = rng.choice(pred.code).format(x=v), rng.choice(step.code).format(x=v)
    acc = rng.choice(("out", "result", "res", "total"))
    values, pair = f"for {v} in {param}.values()", f"for {k}, {v} in {param}.items()"
    red = rng.choice(("dict", "sum", "keys"))
    if red == "keys":
        step = same()
    test = f":\n    if {cond}:\n        "
    bodies, returns, said = {
        "dict": (
            (
                f"return {{{k}: {expr} {pair} if {cond}}}",
                f"{acc} = {{}}\n{pair}{test}{acc}[{k}] = {expr}\nreturn {acc}",
            ),
            "dict[str, int]",
            "a dict with {} under their keys",
        ),
        "sum": (
            (
                f"return sum({expr} {values} if {cond})",
                f"{acc} = 0\n{values}{test}{acc} += {expr}\nreturn {acc}",
            ),
            "int",
            "the sum of {}",
        ),
        "keys": (
            (
                f"return sorted({k} {pair} if {cond})",
                f"{acc} = []\n{pair}{test}{acc}.append({k})\nreturn sorted({acc})",
            ),
            "list[str]",
            "the sorted keys of {}",
        ),
    }[red]
    phrase = step.said[0].replace("{}", f"{rng.choice(pred.said)} among the values of {{0}}")
    made = [
        dict(
            zip(rng.sample(("ann", "bob", "cy", "dee", "ed", "fay"), 3), numbers(rng, length=3), strict=True)
        )
        for _ in range(4)
    ]
    return Problem(
        kind=f"dict-{red}",
        key=f"dict|{pred.key}|{step.key}|{red}",
        name=f"{red}_{pred.name}",
        params=((param, "dict[str, int]"),),
        returns=returns,
        phrase=said.replace("{}", phrase),
        nouns=("a dict",),
        bodies=bodies,
        inputs=(*((d,) for d in made), ({},), ({"b": 12, "a": -3, "c": 7, "z": 20},)),
    )


def cases(rng: random.Random) -> Problem:
    """Return a problem that tells ranges of a number apart."""
    low = rng.randrange(1, 20)
    high = low + rng.randrange(2, 20)
    one, two, three = rng.sample(LABELS, 3)
    n = rng.choice(("n", "x", "value", "t"))
    strict = rng.random() < 0.5
    op, word = ("<", "is less than") if strict else ("<=", "is at most")
    first, second = f"{n} {op} {low}", f"{n} {op} {high}"
    r = rng.choice(("label", "result", "out"))
    return Problem(
        kind="cases",
        key=f"cases|{op}|{low}|{high}|{one}|{two}|{three}",
        name=rng.choice(("label", "classify", "grade", "describe")),
        params=((n, "int"),),
        returns="str",
        phrase=f"'{one}' if {{0}} {word} {low}, '{two}' if it {word} {high}, and '{three}' otherwise",
        nouns=("a number",),
        bodies=(
            f'if {first}:\n    return "{one}"\nif {second}:\n    return "{two}"\nreturn "{three}"',
            f'if {first}:\n    return "{one}"\nelif {second}:\n    return "{two}"\n'
            f'else:\n    return "{three}"',
            f'{r} = "{three}"\nif {first}:\n    {r} = "{one}"\nelif {second}:\n    {r} = "{two}"\nreturn {r}',
        ),
        inputs=tuple(
            (i,) for i in (rng.randrange(0, 40), low - 1, low, low + 1, high - 1, high, high + 1, 0, 99)
        ),
    )


def repeat(rng: random.Random) -> Problem:
    """Return a problem that applies one rule n times, or until a limit is reached."""
    s, a, b = rng.randrange(0, 10), rng.randrange(2, 6), rng.randrange(1, 12)
    n, x = rng.choice(("n", "k", "times")), rng.choice(("x", "value", "result", "cur"))
    if rng.random() < 0.5:
        return Problem(
            kind="repeat",
            key=f"repeat|{s}|{a}|{b}",
            name=rng.choice(("repeat", "iterate", "evolve")),
            params=((n, "int"),),
            returns="int",
            phrase=f"the value reached from {s} by multiplying by {a} and adding {b}, {{0}} times",
            nouns=("n",),
            bodies=(
                f"{x} = {s}\nfor _ in range({n}):\n    {x} = {x} * {a} + {b}\nreturn {x}",
                f"{x} = {s}\nfor i in range({n}):\n    {x} = {a} * {x} + {b}\nreturn {x}",
                f"{x} = {s}\nwhile {n} > 0:\n    {x} = {x} * {a} + {b}\n    {n} -= 1\nreturn {x}",
            ),
            inputs=tuple((i,) for i in (rng.randrange(1, 4), 0, 1, 2, 3, 5)),
        )
    start, steps = rng.randrange(1, 20), rng.choice(("steps", "count", "c"))
    tail = f"\n    {steps} += 1\nreturn {steps}"
    return Problem(
        kind="until",
        key=f"until|{start}|{a}|{b}",
        name=rng.choice(("steps", "count_steps", "climb")),
        params=((n, "int"),),
        returns="int",
        phrase=(
            f"how many steps it takes from {start} to reach at least {{0}} "
            f"when each step multiplies by {a} and adds {b}"
        ),
        nouns=("a limit",),
        bodies=(
            f"{x} = {start}\n{steps} = 0\nwhile {x} < {n}:\n    {x} = {x} * {a} + {b}{tail}",
            f"{x}, {steps} = {start}, 0\nwhile {x} < {n}:\n    {x} = {a} * {x} + {b}{tail}",
        ),
        inputs=tuple((i,) for i in (rng.randrange(20, 200), 0, start, start + 1, 100, 1000)),
    )
