"""The stories of `words`: each returns its text, its solution steps and its answer.

Numbers stay small (products under about 300, sums under about 500), so that every step is one operation
that a model of a few million parameters can learn, and the difficulty lies in reading and in the order
of steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from ripple.tasks.generated.text import listed, plural, singular

Step = tuple[tuple[str, ...], str, int]  # ways to name the quantity, the expression, its value

NAMES = listed(
    "Ada Ben Cleo Dan Eva Finn Gina Hugo Ivy Jon Kira Leo Mia Noah Olga Paul Rosa Sam Tara Uma Vera "
    "Will Yara Zoe"
)
THINGS = listed(
    "pens books stickers marbles shells stamps coins cards beads buttons apples pears plums lemons "
    "eggs muffins cookies balloons ribbons candles stones"
)
HOLDERS = ("boxes", "bags", "baskets", "jars", "crates", "trays")
GOODS = ("pens", "books", "mugs", "caps", "belts", "lamps", "bowls", "kites", "toys", "rulers")


@dataclass(frozen=True, slots=True)
class Story:
    """One word problem, before its solution is phrased."""

    text: str
    steps: tuple[Step, ...]
    answer: int
    unit: str


def _build(
    rng: random.Random, sentences: list[str], question: tuple[str, ...], steps: list[Step], unit: str
) -> Story:
    text = " ".join([*sentences, rng.choice(question)])
    return Story(text, tuple(steps), steps[-1][2], unit)


def _event(rng: random.Random, who: str, thing: str, now: int) -> tuple[str, Step]:
    """Return one change to what someone holds: the sentence and the step."""
    more, less = ["add"], ["take"] if now >= 6 else []
    kinds = more + less + (["times"] if now <= 40 else []) + (["half"] if now % 2 == 0 and now >= 4 else [])
    kind = rng.choice(kinds)
    if kind == "add":
        n = rng.randrange(2, 60)
        said = rng.choice(
            (f"{who} gets {n} more.", f"Then {who} buys {n} more.", f"A friend gives {who} {n} more.")
        )
        return said, (("the new number", f"the number of {thing} after that"), f"{now} + {n}", now + n)
    if kind == "take":
        n = rng.randrange(1, min(now - 1, 60))
        said = rng.choice((f"{who} gives away {n}.", f"Then {who} loses {n}.", f"{who} sells {n} of them."))
        return said, (("what is left", f"the number of {thing} left"), f"{now} - {n}", now - n)
    if kind == "times":
        n = rng.randrange(2, 6)
        said = rng.choice(
            (f"After a week {who} has {n} times as many.", f"Soon the number grows to {n} times that.")
        )
        return said, (("the larger number", f"the number of {thing} after growing"), f"{now} * {n}", now * n)
    said = rng.choice((f"{who} gives half of them to a friend.", "Half of them get lost."))
    return said, (("the other half", f"half of the {thing}"), f"{now} / 2", now // 2)


def chain(rng: random.Random) -> Story:
    """Someone holds some things, and the number changes two to five times."""
    who, thing, now = rng.choice(NAMES), rng.choice(THINGS), rng.randrange(5, 80)
    said = [rng.choice((f"{who} has {now} {thing}.", f"{who} starts with {now} {thing}."))]
    steps: list[Step] = []
    for _ in range(rng.randrange(2, 6)):
        sentence, one = _event(rng, who, thing, now)
        said.append(sentence)
        steps.append(one)
        now = one[2]
    ask = (f"How many {thing} does {who} have now?", f"How many {thing} does {who} have in the end?")
    return _build(rng, said, ask, steps, thing)


def shop(rng: random.Random) -> Story:
    """Two kinds of goods are bought; the bill, and sometimes the change."""
    who = rng.choice(NAMES)
    one, two = rng.sample(GOODS, 2)
    n, p, m, q = rng.randrange(2, 10), rng.randrange(2, 16), rng.randrange(2, 10), rng.randrange(2, 16)
    bill = n * p + m * q
    said = [
        rng.choice((
            f"{who} buys {n} {one} at {p} dollars each and {m} {two} at {q} dollars each.",
            f"In a shop {who} takes {n} {one} for {p} dollars each and {m} {two} for {q} dollars each.",
        ))
    ]  # fmt: skip
    steps: list[Step] = [
        ((f"the cost of the {one}", f"the price of all {one}"), f"{n} * {p}", n * p),
        ((f"the cost of the {two}", f"the price of all {two}"), f"{m} * {q}", m * q),
        (("the bill", "the total cost"), f"{n * p} + {m * q}", bill),
    ]
    ask = ("How many dollars is that in all?", f"How much does {who} pay?")
    if rng.random() < 0.5:
        paid = (bill // 50 + 1) * 50
        said.append(rng.choice((f"{who} pays with {paid} dollars.", f"{who} hands over {paid} dollars.")))
        steps.append((("the change", "the money left"), f"{paid} - {bill}", paid - bill))
        ask = ("How many dollars are left?", f"How much change does {who} get?")
    return _build(rng, said, ask, steps, "dollars")


def work(rng: random.Random) -> Story:
    """Wages per hour over days, then some spending."""
    who, rate, hours, days = rng.choice(NAMES), rng.randrange(3, 13), rng.randrange(2, 7), rng.randrange(2, 6)
    day, total = rate * hours, rate * hours * days
    spent = rng.randrange(1, total)
    said = [
        rng.choice((
            f"{who} earns {rate} dollars an hour and works {hours} hours a day.",
            f"{who} works {hours} hours each day for {rate} dollars an hour.",
        )),
        rng.choice((f"{who} works for {days} days.", f"This goes on for {days} days.")),
    ]  # fmt: skip
    steps: list[Step] = [
        (("the pay for a day", "one day's pay"), f"{rate} * {hours}", day),
        (("the pay for all days", "the whole pay"), f"{day} * {days}", total),
    ]
    ask = (f"How many dollars does {who} earn?", f"How much money does {who} make?")
    if rng.random() < 0.6:
        said.append(
            rng.choice((f"Then {who} spends {spent} dollars.", f"Of this, {spent} dollars go for rent."))
        )
        steps.append((("what is left", "the money left"), f"{total} - {spent}", total - spent))
        ask = (f"How many dollars does {who} have left?", "How much money is left?")
    return _build(rng, said, ask, steps, "dollars")


def compare(rng: random.Random) -> Story:
    """Two or three people hold related numbers of things; their total or difference."""
    a, b, c = rng.sample(NAMES, 3)
    thing, x = rng.choice(THINGS), rng.randrange(4, 40)
    said = [rng.choice((f"{a} has {x} {thing}.", f"{a} owns {x} {thing}."))]
    steps: list[Step] = []
    if rng.random() < 0.5:
        k = rng.randrange(2, 6)
        y, expr = x * k, f"{x} * {k}"
        said.append(
            rng.choice((f"{b} has {k} times as many as {a}.", f"{b} has {k} times the number {a} has."))
        )
    else:
        k = rng.randrange(2, 40)
        y, expr = x + k, f"{x} + {k}"
        said.append(rng.choice((f"{b} has {k} more than {a}.", f"{b} has {k} {thing} more than {a}.")))
    steps.append(((f"the number {b} has", f"{b}'s number"), expr, y))
    if rng.random() < 0.5:
        ask = (f"How many {thing} do they have together?", f"How many {thing} is that in all?")
        steps.append((("the total", "the number together"), f"{x} + {y}", x + y))
        return _build(rng, said, ask, steps, thing)
    k = rng.randrange(1, y)
    said.append(rng.choice((f"{c} has {k} fewer than {b}.", f"{c} has {k} {thing} less than {b}.")))
    steps.append(((f"the number {c} has", f"{c}'s number"), f"{y} - {k}", y - k))
    steps.append(((f"what {a} and {b} have", f"the number of {a} and {b}"), f"{x} + {y}", x + y))
    steps.append((("the total", "the number together"), f"{x + y} + {y - k}", x + y + y - k))
    ask = (f"How many {thing} do all three have?", f"How many {thing} do they have together?")
    return _build(rng, said, ask, steps, thing)


def pack(rng: random.Random) -> Story:
    """Full holders and loose things, some of them used up, maybe shared out again."""
    who, thing, holder = rng.choice(NAMES), rng.choice(THINGS), rng.choice(HOLDERS)
    n, p, k = rng.randrange(2, 10), rng.randrange(3, 16), rng.randrange(2, 7)
    loose = rng.randrange(1, 40)
    total = n * p + loose
    said = [
        rng.choice((
            f"{who} has {n} {holder} with {p} {thing} each and {loose} loose {thing}.",
            f"There are {n} {holder} of {p} {thing}, and {plural(loose, thing)} beside them.",
        ))
    ]  # fmt: skip
    steps: list[Step] = [
        ((f"the number in the {holder}", f"the {thing} in the {holder}"), f"{n} * {p}", n * p),
        (("the number in all", f"the number of all {thing}"), f"{n * p} + {loose}", total),
    ]
    ask = (f"How many {thing} are there?", f"How many {thing} is that in all?")
    if rng.random() < 0.6:
        keep = (total - 1) // k
        used = total - keep * k
        said.append(rng.choice((f"{used} of them are used.", f"{who} throws {used} of them away.")))
        steps.append((("what is left", f"the number of {thing} left"), f"{total} - {used}", total - used))
        said.append(
            rng.choice((f"The rest is shared by {k} friends.", f"{k} friends share the rest equally."))
        )
        steps.append((("each share", "the share of each friend"), f"{total - used} / {k}", keep))
        ask = (f"How many {thing} does each friend get?", f"How many {thing} go to each friend?")
    return _build(rng, said, ask, steps, thing)


def travel(rng: random.Random) -> Story:
    """Two legs at steady speeds, and what remains of a longer way."""
    who, s, h, t, g = (
        rng.choice(NAMES),
        rng.randrange(4, 31),
        rng.randrange(2, 6),
        rng.randrange(4, 31),
        rng.randrange(2, 6),
    )
    done = s * h + t * g
    said = [
        rng.choice((
            f"{who} rides {h} hours at {s} km per hour and then {g} hours at {t} km per hour.",
            f"{who} drives at {s} km per hour for {h} hours, then at {t} km per hour for {g} hours.",
        ))
    ]  # fmt: skip
    steps: list[Step] = [
        (("the first part", "the way in the first part"), f"{s} * {h}", s * h),
        (("the second part", "the way in the second part"), f"{t} * {g}", t * g),
        (("the whole way so far", "the distance covered"), f"{s * h} + {t * g}", done),
    ]
    ask = (f"How many km does {who} travel?", "How long is the way in km?")
    if rng.random() < 0.4:
        way = done + rng.randrange(5, 100)
        said.append(rng.choice((f"The whole trip is {way} km.", f"The goal is {way} km from the start.")))
        steps.append((("what remains", "the way that is left"), f"{way} - {done}", way - done))
        ask = ("How many km are left?", f"How far does {who} still have to go in km?")
    return _build(rng, said, ask, steps, "km")


def garden(rng: random.Random) -> Story:
    """Rows of plants, some of which fail, each bearing fruit."""
    who, plant = rng.choice(NAMES), rng.choice(("roses", "tulips", "trees", "bushes", "vines"))
    rows, each, fruit = rng.randrange(2, 9), rng.randrange(3, 10), rng.randrange(2, 6)
    total = rows * each
    lost = rng.randrange(1, total)
    left = total - lost
    said = [
        rng.choice((
            f"{who} plants {rows} rows of {each} {plant}.",
            f"In the garden of {who} there are {rows} rows with {each} {plant} each.",
        )),
        rng.choice((f"{lost} of them die in a storm.", f"The frost kills {lost} of them.")),
    ]  # fmt: skip
    steps: list[Step] = [
        ((f"the number of {plant}", f"the number of {plant} planted"), f"{rows} * {each}", total),
        ((f"the number of {plant} left", "what is left"), f"{total} - {lost}", left),
    ]
    ask: tuple[str, ...] = (f"How many {plant} are left?", f"How many {plant} does {who} still have?")
    unit = plant
    if rng.random() < 0.6:
        said.append(f"Each {singular(plant)} that is left has {fruit} buds.")
        steps.append((("the number of buds", "the buds in all"), f"{left} * {fruit}", left * fruit))
        ask, unit = (("How many buds are there?", "How many buds is that in all?"), "buds")
    return _build(rng, said, ask, steps, unit)


def reading(rng: random.Random) -> Story:
    """Pages read over some days, and the days or pages that remain."""
    who, a, n, b, m = (
        rng.choice(NAMES),
        rng.randrange(5, 26),
        rng.randrange(2, 7),
        rng.randrange(5, 26),
        rng.randrange(2, 7),
    )
    per, days = rng.randrange(2, 10), rng.randrange(2, 10)
    done = a * n + b * m
    book = done + per * days
    said = [
        rng.choice((
            f"{who} reads {a} pages a day for {n} days and {b} pages a day for {m} days.",
            f"For {n} days {who} reads {a} pages a day, and for {m} more days {b} pages a day.",
        )),
        rng.choice((f"The book has {book} pages.", f"It is a book of {book} pages.")),
    ]  # fmt: skip
    steps: list[Step] = [
        (("the first pages", "the number of pages read at first"), f"{a} * {n}", a * n),
        (("the next pages", "the number of pages read later"), f"{b} * {m}", b * m),
        (("the pages read", "the number of pages read so far"), f"{a * n} + {b * m}", done),
        (("the pages left", "the number of pages that remain"), f"{book} - {done}", book - done),
    ]
    ask: tuple[str, ...] = ("How many pages are left?", f"How many pages does {who} still have to read?")
    unit = "pages"
    if rng.random() < 0.5:
        said.append(
            rng.choice(
                (f"From now on {who} reads {per} pages a day.", f"The rest is read at {per} pages a day.")
            )
        )
        steps.append((("the days needed", "the number of days"), f"{book - done} / {per}", days))
        ask, unit = (("How many more days does it take?", "How many days are needed for the rest?"), "days")
    return _build(rng, said, ask, steps, unit)


STORIES: dict[str, Callable[[random.Random], Story]] = {
    f.__name__: f for f in (chain, shop, work, compare, pack, travel, garden, reading)
}
