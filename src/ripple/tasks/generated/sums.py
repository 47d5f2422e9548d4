"""The exercises of `algebra` that stay with numbers: remainders, divisors, percentages, averages."""

from __future__ import annotations

import random

from ripple.tasks.generated.working import Exercise, Ways, signed, ways


def remainder(rng: random.Random) -> Exercise:
    """A sum or a product, modulo a small number."""
    m, a, b = rng.randrange(3, 12), rng.randrange(5, 60), rng.randrange(5, 60)
    op = rng.choice("+*")
    x, y = a % m, b % m
    v = x + y if op == "+" else x * y
    return Exercise(
        (f"What is the remainder of {a} {op} {b} when divided by {m}?", f"Find {a} {op} {b} modulo {m}."),
        (
            ways(f"{a} leaves {x} and {b} leaves {y}", "reduce both numbers", f"divide by {m}"),
            ways(f"{x} {op} {y} = {v}", "combine the remainders", "put them together"),
            ways(f"{v} leaves {v % m}", f"reduce by {m}", "reduce once more"),
        ),
        v % m,
    )


def divisor(rng: random.Random) -> Exercise:
    """The greatest common divisor by repeated division."""
    g, p, q = rng.randrange(2, 16), rng.randrange(2, 10), rng.randrange(2, 10)
    a, b = max(g * p, g * q), min(g * p, g * q)
    top, low = a, b
    steps: list[Ways] = []
    while low:
        steps.append(
            ways(f"{top} = {top // low} * {low} + {top % low}", f"divide by {low}", "take the remainder")
        )
        top, low = low, top % low
    return Exercise(
        (f"What is the greatest common divisor of {a} and {b}?", f"Find gcd({a}, {b})."),
        tuple(steps),
        top,
    )


def percent(rng: random.Random) -> Exercise:
    """A percentage of a number, and sometimes the number after the change."""
    p, n = rng.choice((5, 10, 20, 25, 30, 40, 50, 60, 75)), 20 * rng.randrange(1, 21)
    one = n * p // 100
    first = ways(f"{n} * {p} / 100 = {one}", "take the percentage", f"find {p} hundredths")
    mode = rng.choice(("plain", "up", "down"))
    if mode == "plain":
        return Exercise((f"What is {p} percent of {n}?", f"Find {p}% of {n}."), (first,), one)
    sign, value, word = ("+", n + one, "increased") if mode == "up" else ("-", n - one, "decreased")
    return Exercise(
        (f"A price of {n} is {word} by {p} percent. What is it now?", f"What is {n} {word} by {p}%?"),
        (first, ways(f"{n} {sign} {one} = {value}", "add it" if sign == "+" else "take it away")),
        value,
    )


def mean(rng: random.Random) -> Exercise:
    """The average of a few numbers."""
    n, average = rng.randrange(3, 6), rng.randrange(5, 40)
    values = [average + rng.randrange(-4, 5) for _ in range(n - 1)]
    values.append(average * n - sum(values))
    steps, running = [], values[0]
    for v in values[1:]:
        steps.append(ways(f"{running} {signed(v)} = {running + v}", "add the next number", f"add {v}"))
        running += v
    steps.append(ways(f"{running} / {n} = {average}", f"divide by {n}", "share the sum"))
    shown = ", ".join(map(str, values))
    return Exercise((f"Find the average of {shown}.", f"What is the mean of {shown}?"), tuple(steps), average)
