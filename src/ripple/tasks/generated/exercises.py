"""The exercises of `algebra`: each returns ways to ask, steps with ways to say each, and the answer.

Every step is one operation on small integers; the difficulty is which operation comes next.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from ripple.tasks.generated.sums import divisor, mean, percent, remainder
from ripple.tasks.generated.working import Exercise, signed, ways


def linear(rng: random.Random) -> Exercise:
    """A x + b = c."""
    a, x, v = rng.randrange(2, 13), rng.randrange(-12, 21), rng.choice("xyzn")
    b = rng.choice([n for n in range(-40, 60) if n])
    c = a * x + b
    undo = f"{c} {signed(-b)}"
    return Exercise(
        (f"Solve {a}{v} {signed(b)} = {c} for {v}.", f"Find {v} if {a}{v} {signed(b)} = {c}."),
        (
            ways(
                f"{a}{v} = {undo} = {c - b}",
                f"move {abs(b)} to the right",
                f"{'subtract' if b > 0 else 'add'} {abs(b)}",
            ),
            ways(f"{v} = {c - b} / {a} = {x}", f"divide by {a}"),
        ),
        x,
    )


def two_sided(rng: random.Random) -> Exercise:
    """A x + b = c x + d with a > c."""
    c, x, v = rng.randrange(2, 9), rng.randrange(1, 16), rng.choice("xyzn")
    a, b = c + rng.randrange(2, 8), rng.randrange(1, 40)
    d = a * x + b - c * x
    return Exercise(
        (f"Solve {a}{v} + {b} = {c}{v} + {d}.", f"Find {v} such that {a}{v} + {b} = {c}{v} + {d}."),
        (
            ways(f"{a}{v} - {c}{v} = {a - c}{v}", "collect the unknowns", f"subtract {c}{v}"),
            ways(f"{a - c}{v} = {d} - {b} = {d - b}", f"subtract {b}", "collect the numbers"),
            ways(f"{v} = {d - b} / {a - c} = {x}", f"divide by {a - c}"),
        ),
        x,
    )


def bracket(rng: random.Random) -> Exercise:
    """A (x + b) = c."""
    a, x, b, v = rng.randrange(2, 10), rng.randrange(1, 25), rng.randrange(1, 20), rng.choice("xyzn")
    c = a * (x + b)
    return Exercise(
        (f"Solve {a}({v} + {b}) = {c}.", f"If {a}({v} + {b}) = {c}, what is {v}?"),
        (
            ways(f"{v} + {b} = {c} / {a} = {x + b}", f"divide by {a}", "clear the factor"),
            ways(f"{v} = {x + b} - {b} = {x}", f"subtract {b}", "isolate the unknown"),
        ),
        x,
    )


def expression(rng: random.Random) -> Exercise:
    """A * (b + c) - d, or a * b + c * d."""
    a, b, c = rng.randrange(2, 10), rng.randrange(2, 15), rng.randrange(2, 15)
    if rng.random() < 0.5:
        d, total = rng.randrange(2, 60), a * (b + c)
        return Exercise(
            (f"Compute {a} * ({b} + {c}) - {d}.", f"What is the value of {a} * ({b} + {c}) - {d}?"),
            (
                ways(f"{b} + {c} = {b + c}", "add inside the brackets", "start with the sum"),
                ways(f"{a} * {b + c} = {total}", "multiply"),
                ways(f"{total} - {d} = {total - d}", "subtract"),
            ),
            total - d,
        )
    d = rng.randrange(2, 10)
    return Exercise(
        (f"Compute {a} * {b} + {c} * {d}.", f"What is the value of {a} * {b} + {c} * {d}?"),
        (
            ways(f"{a} * {b} = {a * b}", "take the first product", "multiply"),
            ways(f"{c} * {d} = {c * d}", "take the second product"),
            ways(f"{a * b} + {c * d} = {a * b + c * d}", "add", "add the products"),
        ),
        a * b + c * d,
    )


def arithmetic(rng: random.Random) -> Exercise:
    """The n-th term of an arithmetic sequence."""
    first, gap, n = rng.randrange(1, 30), rng.randrange(2, 13), rng.randrange(6, 21)
    shown = ", ".join(str(first + gap * i) for i in range(4))
    return Exercise(
        (
            f"What is term number {n} of the sequence {shown}, ...?",
            f"A sequence goes {shown}, ... Find term {n}.",
        ),
        (
            ways(f"{first + gap} - {first} = {gap}", "find the step", "compare neighbours"),
            ways(f"{n} - 1 = {n - 1}", "count the steps", "need the number of steps"),
            ways(f"{n - 1} * {gap} = {(n - 1) * gap}", "multiply"),
            ways(f"{first} + {(n - 1) * gap} = {first + (n - 1) * gap}", "add the first term", "add"),
        ),
        first + (n - 1) * gap,
    )


def doubling(rng: random.Random) -> Exercise:
    """A later term of a geometric sequence."""
    first, ratio = rng.randrange(1, 13), rng.choice((2, 2, 3))
    more = rng.randrange(1, 4 if ratio == 2 else 3)
    terms = [first * ratio**i for i in range(3 + more)]
    shown = ", ".join(map(str, terms[:3]))
    steps = [ways(f"{terms[1]} / {first} = {ratio}", "find the factor", "compare neighbours")]
    for i in range(3, 3 + more):
        steps.append(ways(f"{terms[i - 1]} * {ratio} = {terms[i]}", f"get term {i + 1}", "multiply again"))
    n = 3 + more
    return Exercise(
        (f"What is term number {n} of {shown}, ... if each term has the same ratio?",
         f"A geometric sequence begins {shown}. Find term {n}."),
        tuple(steps),
        terms[-1],
    )  # fmt: skip


def system(rng: random.Random) -> Exercise:
    """X + y = s and x - y = d; one of the two is asked for."""
    x, y = rng.randrange(2, 50), rng.randrange(1, 40)
    s, d = x + y, x - y
    want = rng.choice("xy")
    steps = [
        ways(f"2x = {s} {signed(d)} = {s + d}", "add the equations", "get rid of y"),
        ways(f"x = {s + d} / 2 = {x}", "divide by 2", "halve"),
    ]
    if want == "y":
        steps.append(ways(f"y = {s} - {x} = {y}", "put x into the first equation", "subtract"))
    return Exercise(
        (
            f"If x + y = {s} and x - y = {d}, what is {want}?",
            f"Given x + y = {s} and x - y = {d}, find {want}.",
        ),
        tuple(steps),
        x if want == "x" else y,
    )


def polynomial(rng: random.Random) -> Exercise:
    """The value of a quadratic at a small number."""
    a, b, c, x = rng.randrange(1, 6), rng.randrange(1, 10), rng.randrange(-20, 30), rng.randrange(2, 10)
    f = rng.choice("fgh")
    sq, lin = a * x * x, b * x
    return Exercise(
        (
            f"Let {f}(x) = {a}x^2 + {b}x {signed(c)}. Find {f}({x}).",
            f"If {f}(x) = {a}x^2 + {b}x {signed(c)}, what is {f}({x})?",
        ),
        (
            ways(f"{x}^2 = {x * x}", "square the input", f"square {x}"),
            ways(f"{a} * {x * x} = {sq}", "take the first term", "multiply"),
            ways(f"{b} * {x} = {lin}", "take the second term"),
            ways(f"{sq} + {lin} = {sq + lin}", "add"),
            ways(f"{sq + lin} {signed(c)} = {sq + lin + c}", "finish with the constant", "use the constant"),
        ),
        sq + lin + c,
    )


def rectangle(rng: random.Random) -> Exercise:
    """Area, perimeter or a missing side of a rectangle."""
    a, b = rng.randrange(3, 31), rng.randrange(2, 16)
    mode = rng.choice(("perimeter", "side"))
    if mode == "perimeter":
        return Exercise(
            (
                f"A rectangle has sides {a} and {b}. What is its perimeter?",
                f"Find the perimeter of a {a} by {b} rectangle.",
            ),
            (
                ways(f"{a} + {b} = {a + b}", "add the sides"),
                ways(f"2 * {a + b} = {2 * (a + b)}", "double it", "multiply by 2"),
            ),
            2 * (a + b),
        )
    area = a * b
    return Exercise(
        (f"A rectangle of area {area} has one side {b}. What is its perimeter?",
         f"One side of a rectangle is {b} and its area is {area}. Find the perimeter."),
        (
            ways(f"{area} / {b} = {a}", "find the other side", f"divide by {b}"),
            ways(f"{a} + {b} = {a + b}", "add the sides"),
            ways(f"2 * {a + b} = {2 * (a + b)}", "double it", "multiply by 2"),
        ),
        2 * (a + b),
    )  # fmt: skip


def consecutive(rng: random.Random) -> Exercise:
    """Three consecutive integers with a known sum."""
    x, which = rng.randrange(3, 90), rng.choice(("smallest", "largest"))
    s = 3 * x
    value = x - 1 if which == "smallest" else x + 1
    return Exercise(
        (
            f"Three consecutive integers add up to {s}. What is the {which}?",
            f"The sum of three consecutive integers is {s}. Find the {which} one.",
        ),
        (
            ways(f"{s} / 3 = {x}", "find the middle one", "divide by 3"),
            ways(
                f"{x} {'-' if which == 'smallest' else '+'} 1 = {value}", f"go to the {which}", "move by one"
            ),
        ),
        value,
    )


EXERCISES: dict[str, Callable[[random.Random], Exercise]] = {
    f.__name__: f
    for f in (
        linear,
        two_sided,
        bracket,
        expression,
        arithmetic,
        doubling,
        remainder,
        system,
        divisor,
        percent,
        mean,
        polynomial,
        rectangle,
        consecutive,
    )
}
