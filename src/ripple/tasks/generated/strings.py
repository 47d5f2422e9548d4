"""Problems about the characters of a string and the words of a sentence."""

from __future__ import annotations

import random
from collections.abc import Callable

from ripple.tasks.generated.parts import Part
from ripple.tasks.generated.pipelines import Flow
from ripple.tasks.generated.problems import Args, Problem
from ripple.tasks.generated.text import listed

TEXT_NAMES = ("s", "text", "string", "phrase")
CHAR_NAMES = ("c", "ch", "char", "letter")
WORD_NAMES = ("w", "word", "token", "part")
LETTERS = "abcdefghilmnoprstuw"
VOCABULARY = listed(
    "apple river stone cat moon Garden blue tree Sun paper light dog house red winter Bird glass "
    "small ocean wind table Lamp ant song city bread noon"
)
_ACCS = ("out", "result", "res", "kept", "acc")
Writer = Callable[[Flow], tuple[str, ...]]


def _char_predicate(rng: random.Random) -> Part:
    k = rng.choice(LETTERS)
    return rng.choice(
        (
            Part("vowel", ("the vowels",), ('{x} in "aeiou"', '{x} in "aeiou"'), "vowels"),
            Part("consonant", ("the characters that are not vowels",), ('{x} not in "aeiou"',), "non_vowels"),
            Part("digit", ("the digits",), ("{x}.isdigit()",), "digits"),
            Part("alpha", ("the letters",), ("{x}.isalpha()",), "letters"),
            Part("upper", ("the uppercase letters",), ("{x}.isupper()",), "upper"),
            Part("lower", ("the lowercase letters",), ("{x}.islower()",), "lower"),
            Part("nonspace", ("the characters other than spaces",), ('{x} != " "',), "nonspace"),
            Part(
                f"is-{k}",
                (f"the characters equal to '{k}'", f"the letters '{k}'"),
                (f'{{x}} == "{k}"',),
                f"only_{k}",
            ),
            Part(f"not-{k}", (f"the characters other than '{k}'",), (f'{{x}} != "{k}"',), f"without_{k}"),
            Part(f"after-{k}", (f"the characters after '{k}' in order",), (f'{{x}} > "{k}"',), f"after_{k}"),
            Part(
                f"before-{k}", (f"the characters before '{k}' in order",), (f'{{x}} < "{k}"',), f"before_{k}"
            ),
        )
    )


def _char_map(rng: random.Random) -> Part:
    k, j = rng.randrange(2, 6), rng.choice("*-+_#")
    return rng.choice((
        Part("id", ("{}",), ("{x}",)),
        Part("upper", ("{} in uppercase",), ("{x}.upper()",), "upper"),
        Part("lower", ("{} in lowercase",), ("{x}.lower()",), "lower"),
        Part("swap", ("{} with their case swapped",), ("{x}.swapcase()",), "swap"),
        Part(f"rep{k}", (f"{{}} each repeated {k} times",), (f"{{x}} * {k}",), "repeat"),
        Part(f"mark{j}", (f"{{}} each followed by '{j}'",), (f'{{x}} + "{j}"',), "mark"),
    ))  # fmt: skip


def _join(f: Flow, sep: str = "") -> tuple[str, ...]:
    loop = f"{f.acc} = []\n{f.loop(f'{f.acc}.append({f.expr})')}\n" + f'return "{sep}".join({f.acc})'
    first = (f'return "{sep}".join({f.gen()})', loop, f'{f.acc} = [{f.gen()}]\nreturn "{sep}".join({f.acc})')
    return first if sep else (*first, f'{f.acc} = ""\n{f.loop(f"{f.acc} += {f.expr}")}\nreturn {f.acc}')


def _backwards(f: Flow) -> tuple[str, ...]:
    return (
        f'return "".join({f.gen()})[::-1]',
        f'{f.acc} = "".join({f.gen()})\nreturn {f.acc}[::-1]',
    )


def _collect(f: Flow) -> tuple[str, ...]:
    return (
        f"return [{f.gen()}]",
        f"{f.acc} = []\n{f.loop(f'{f.acc}.append({f.expr})')}\nreturn {f.acc}",
    )


def _ordered(f: Flow) -> tuple[str, ...]:
    return (
        f"return sorted({f.gen()})",
        f"{f.acc} = [{f.gen()}]\n{f.acc}.sort()\nreturn {f.acc}",
        f"{f.acc} = []\n{f.loop(f'{f.acc}.append({f.expr})')}\nreturn sorted({f.acc})",
    )


def _tally(f: Flow) -> tuple[str, ...]:
    one = Flow(f.x, f.over, f.cond, "1", f.acc)
    return (
        f"return sum({one.gen()})",
        f"count = 0\n{f.loop('count += 1')}\nreturn count",
        f"return len([{f.gen()}])",
    )


CHAR_REDUCES: tuple[tuple[str, tuple[str, ...], str, Writer], ...] = (
    ("join", ("a string of {}", "{} joined into one string"), "str", _join),
    ("reverse", ("a string of {}, reversed", "{} joined and reversed"), "str", _backwards),
    ("list", ("a list of {}", "{} as a list"), "list[str]", _collect),
    ("sorted", ("a sorted list of {}", "{} in sorted order"), "list[str]", _ordered),
    ("count", ("how many there are of {}", "the number of {}"), "int", _tally),
)


def characters(rng: random.Random) -> Problem:
    """Return a random problem about the characters of a string."""
    pred = _char_predicate(rng)
    key, said, returns, write = rng.choice(CHAR_REDUCES)
    step = Part("id", ("{}",), ("{x}",)) if key == "count" else _char_map(rng)
    param = rng.choice(TEXT_NAMES)
    x = rng.choice(CHAR_NAMES)
    flow = Flow(x, param, rng.choice(pred.code).format(x=x), step.code[0].format(x=x), rng.choice(_ACCS))
    phrase = rng.choice(said).replace("{}", step.said[0].replace("{}", f"{rng.choice(pred.said)} of {{0}}"))
    return Problem(
        kind=f"chars-{key}",
        key=f"chars|{pred.key}|{step.key}|{key}",
        name="_".join([key, pred.name, *([step.name] if step.name and rng.random() < 0.5 else [])]),
        params=((param, "str"),),
        returns=returns,
        phrase=phrase,
        nouns=("a string",),
        bodies=write(flow),
        inputs=(*((_text(rng, 2),) for _ in range(4)), ("",), ("Room 42 abc XYZ",), ("uno due tre a1b2",)),
    )


def _word_predicate(rng: random.Random) -> Part:
    k, c = rng.randrange(2, 7), rng.choice(LETTERS)
    return rng.choice(
        (
            Part("all", ("the words",), ("",), "words"),
            Part(
                f"longer{k}",
                (f"the words longer than {k} letters", f"the words with more than {k} letters"),
                (f"len({{x}}) > {k}",),
                "long",
            ),
            Part(
                f"shorter{k}",
                (f"the words shorter than {k} letters", f"the words with fewer than {k} letters"),
                (f"len({{x}}) < {k}",),
                "short",
            ),
            Part(f"exact{k}", (f"the words of exactly {k} letters",), (f"len({{x}}) == {k}",), "exact"),
            Part(
                f"starts-{c}",
                (f"the words that start with '{c}'",),
                (f'{{x}}.startswith("{c}")', f'{{x}}[0] == "{c}"'),
                "starting",
            ),
            Part(
                f"ends-{c}",
                (f"the words that end with '{c}'",),
                (f'{{x}}.endswith("{c}")', f'{{x}}[-1] == "{c}"'),
                "ending",
            ),
            Part(f"has-{c}", (f"the words that contain '{c}'",), (f'"{c}" in {{x}}',), "containing"),
            Part(f"lacks-{c}", (f"the words without '{c}'",), (f'"{c}" not in {{x}}',), "lacking"),
            Part("title", ("the capitalized words",), ("{x}[0].isupper()",), "capitalized"),
        )
    )


def _word_map(rng: random.Random) -> Part:
    j = rng.choice("!?.;")
    return rng.choice((
        Part("id", ("{}",), ("{x}",)),
        Part("upper", ("{} in uppercase",), ("{x}.upper()",), "upper"),
        Part("lower", ("{} in lowercase",), ("{x}.lower()",), "lower"),
        Part("back", ("{} spelled backwards",), ("{x}[::-1]",), "backwards"),
        Part("first", ("the first letters of {}",), ("{x}[0]",), "initials"),
        Part("last", ("the last letters of {}",), ("{x}[-1]",), "endings"),
        Part(f"mark{j}", (f"{{}} each followed by '{j}'",), (f'{{x}} + "{j}"',), "marked"),
    ))  # fmt: skip


def _joined(sep: str) -> Writer:
    return lambda f: _join(f, sep)


def _lengths(word: str, default: str) -> Writer:
    def write(f: Flow) -> tuple[str, ...]:
        flow = Flow(f.x, f.over, f.cond, f"len({f.x})", f.acc)
        gen = f"({flow.gen()}), default=0" if default else flow.gen()
        after = f"{word}({f.acc}) if {f.acc} else 0" if default else f"{word}({f.acc})"
        return f"return {word}({gen})", f"{f.acc} = [{flow.gen()}]\nreturn {after}"

    return write


def _dictionary(f: Flow) -> tuple[str, ...]:
    cond = f" if {f.cond}" if f.cond else ""
    return (
        f"return {{{f.x}: len({f.x}) for {f.x} in {f.over}{cond}}}",
        f"{f.acc} = {{}}\n{f.loop(f'{f.acc}[{f.x}] = len({f.x})')}\nreturn {f.acc}",
    )


WORD_REDUCES: tuple[tuple[str, tuple[str, ...], str, Writer, bool], ...] = (
    ("list", ("a list of {}", "{} as a list"), "list[str]", _collect, True),
    ("join", ("{} joined by spaces", "a string of {} with spaces between"), "str", _joined(" "), True),
    ("dash", ("{} joined by dashes", "a string of {} with dashes between"), "str", _joined("-"), True),
    ("sorted", ("a sorted list of {}", "{} in sorted order"), "list[str]", _ordered, True),
    ("count", ("how many there are of {}", "the number of {}"), "int", _tally, False),
    ("total", ("the total length of {}",), "int", _lengths("sum", ""), False),
    (
        "longest",
        ("the length of the longest of {}, or 0 if there are none",),
        "int",
        _lengths("max", "0"),
        False,
    ),
    (
        "shortest",
        ("the length of the shortest of {}, or 0 if there are none",),
        "int",
        _lengths("min", "0"),
        False,
    ),
    (
        "lengths",
        ("a dict from {} to their lengths", "a dict with the length of each of {}"),
        "dict[str, int]",
        _dictionary,
        False,
    ),
)


def sentence(rng: random.Random) -> Problem:
    """Return a random problem about the words of a sentence."""
    pred = _word_predicate(rng)
    key, said, returns, write, maps = rng.choice(WORD_REDUCES)
    step = _word_map(rng) if maps else Part("id", ("{}",), ("{x}",))
    param, x = rng.choice(TEXT_NAMES), rng.choice(WORD_NAMES)
    words = rng.choice(("words", "parts", "tokens"))
    cut = rng.random() < 0.4
    over = words if cut else f"{param}.split()"
    flow = Flow(x, over, rng.choice(pred.code).format(x=x), step.code[0].format(x=x), rng.choice(_ACCS))
    bodies = write(flow)
    if cut:
        bodies = tuple(f"{words} = {param}.split()\n{body}" for body in bodies)
    phrase = rng.choice(said).replace("{}", step.said[0].replace("{}", f"{rng.choice(pred.said)} in {{0}}"))
    return Problem(
        kind=f"sentence-{key}",
        key=f"sentence|{pred.key}|{step.key}|{key}",
        name="_".join([key, pred.name, *([step.name] if step.name and rng.random() < 0.5 else [])]),
        params=((param, "str"),),
        returns=returns,
        phrase=phrase,
        nouns=("a sentence",),
        bodies=bodies,
        inputs=_sentences(rng),
    )


def _sentences(rng: random.Random) -> tuple[Args, ...]:
    more = (("",), ("one two three four seven",), ("Sun and Moon rise over a long calm sea",))
    return (*((_text(rng, rng.randrange(3, 5)),) for _ in range(4)), *more)


def _text(rng: random.Random, n: int) -> str:
    return " ".join(rng.choice(VOCABULARY) for _ in range(n))
