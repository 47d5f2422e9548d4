"""Finds final answers in LaTeX text and compares them by our own rules, where math_verify is missing.

The comparison is by spelling after normalisation, by exact value for plain numbers and fractions, and by
parts for lists, tuples and intervals. It does no algebra: `2(x+1)` and `2x+2` are different to it.
"""

from __future__ import annotations

import re
from fractions import Fraction

_SENTENCE = re.compile(
    r"Final Answer:\s*The final answer is:?[ \t]*(.+?)\.?[ \t]*(?:\.?\s*I hope it is correct|\n|$)"
)
_LOOSE = re.compile(r"(?i)answer\s*(?:is|:|=)\s*:?\s*(.+?)\.?\s*(?:\n|$)")
_MATH = re.compile(r"(?<!\\)\$([^$]+)(?<!\\)\$")

_GONE = re.compile(
    r"\\[!,;:]|\\ |~|\\q?quad\b|\\(?:left|right|big|Big|bigg|Bigg)(?![a-zA-Z])|\\displaystyle\b"
    r"|\\\$|\$|\\[()]|\^\s*\{?\s*\\circ\s*\}?|\\degree\b|°|\\?%"
)
_WORDS = re.compile(r"\\(?:text|mbox)\s*\{([^{}]*)\}(?:\s*\^\s*\{?\d\}?)?")
_FONT = re.compile(r"\\(?:textbf|textit|mathrm|mathbf|mathit|operatorname)\s*\{([^{}]*)\}")
_UNIT = re.compile(r"(-?[\d.,/]*\d)\s+[A-Za-z]{2,}[A-Za-z .]*(?:\^\s*\{?\d\}?)?")
_NAMED = re.compile(r"^[A-Za-z](?:_\{?\w+\}?)?(?:=|\\in(?![a-z]))")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)")
_RATIO = re.compile(r"([+-]?)(?:\\frac\{([+-]?\d+)\}\{([+-]?\d+)\}|(\d+)/(\d+))")
_MIXED = re.compile(r"([+-]?)(\d+)\\frac\{(\d+)\}\{(\d+)\}")
_SPELLINGS = (
    (re.compile(r"\\[dtc]frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\(le|ge|ne)q(?![a-zA-Z])"), r"\\\1"),
    (re.compile(r"\\frac([0-9a-zA-Z])"), r"\\frac{\1}"),
    (re.compile(r"(\\frac\{[^{}]*\})([0-9a-zA-Z])"), r"\1{\2}"),
    (re.compile(r"\\sqrt([0-9a-zA-Z])"), r"\\sqrt{\1}"),
    (re.compile(r"_\{(\w+)\}"), r"_\1"),
    (re.compile(r"\^\{(\w)\}"), r"^\1"),
    (re.compile(r"\+\\infty"), r"\\infty"),
)
_OPEN, _CLOSE = "([{", ")]}"


def boxed(text: str) -> str | None:
    r"""Return what stands in the last complete `\boxed{...}`, braces within braces included."""
    closes = _closes(text)
    for found in reversed(list(re.finditer(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*", text))):
        start = found.end()
        if text[start : start + 1] == "{":
            if start in closes:
                return text[start + 1 : closes[start]].strip()
            continue
        bare = re.compile(r"[^\s$]+").match(text, start)
        if bare:
            return bare.group().rstrip(".")
    return None


def _closes(text: str) -> dict[int, int]:
    """Return where each brace is closed, in one pass: a model may repeat an open box a thousand times."""
    closes: dict[int, int] = {}
    waiting: list[int] = []
    for place, char in enumerate(text):
        if char == "{":
            waiting.append(place)
        elif char == "}" and waiting:
            closes[waiting.pop()] = place
    return closes


def final_sentence(text: str) -> str | None:
    """Return the answer of the first `Final Answer: The final answer is X. I hope it is correct.`."""
    found = _SENTENCE.search(text)
    return found.group(1).strip() if found else None


def any_answer(text: str) -> str | None:
    """Return the best guess: the last box, the sentence, `answer is X`, or the last formula."""
    for answer in (boxed(text), final_sentence(text)):
        if answer is not None:
            return answer
    loose = _LOOSE.findall(text) or _MATH.findall(text)
    return loose[-1].strip() if loose else None


def normalise(answer: str) -> str:
    """Return an answer in one spelling: without units, spacing commands, degrees and money signs."""
    inner = boxed(answer)
    text = (answer if inner is None else inner).strip()
    text = re.sub(r"\\(?:text|mbox)\s*\{\s*(?:and|or)\s*\}", ",", text)
    # Words beside mathematics are a unit; words alone are the answer.
    without = _WORDS.sub("", text)
    text = without if without.strip(" $.") else _WORDS.sub(r"\1", text)
    text = _GONE.sub("", _FONT.sub(r"\1", text)).strip().rstrip(".")
    unit = _UNIT.fullmatch(text)
    text = re.sub(r"\s+", "", unit.group(1) if unit else text)
    text = _NAMED.sub("", text) or text
    for pattern, spelled in _SPELLINGS:
        text = pattern.sub(spelled, text)
    if len(text) > 2 and text[0] == "{" and _parts(text[1:-1]) is not None and text[-1] == "}":
        text = text[1:-1]
    choice = re.fullmatch(r"\(([A-Za-z])\)", text)
    if choice:
        return choice.group(1)
    return text.replace(",", "") if _GROUPED.fullmatch(text) else text


def value(text: str) -> Fraction | None:
    """Return the exact value of a normalised whole, decimal, ratio or mixed number."""
    try:
        if _DECIMAL.fullmatch(text):
            return Fraction(text)
        mixed = _MIXED.fullmatch(text)
        if mixed:
            size = int(mixed[2]) + Fraction(int(mixed[3]), int(mixed[4]))
            return -size if mixed[1] == "-" else size
        ratio = _RATIO.fullmatch(text)
        if ratio:
            size = Fraction(int(ratio[2] or ratio[4]), int(ratio[3] or ratio[5]))
            return -size if ratio[1] == "-" else size
    except (ValueError, ZeroDivisionError):  # more digits than Python converts, or a zero below the bar
        return None
    return None


def same(answer: str, gold: str) -> bool:
    """Say whether two answers are the same by our rules."""
    return _same(normalise(answer), normalise(gold))


def _same(a: str, b: str) -> bool:
    if a == b:
        return a != ""
    left, right = value(a), value(b)
    if left is not None or right is not None:
        return left == right
    parts, others = _parts(a), _parts(b)
    if parts and others and len(parts) == len(others) > 1:  # a bare list: order does not matter
        rest = list(others)
        for part in parts:
            match = next((other for other in rest if _same(part, other)), None)
            if match is None:
                return False
            rest.remove(match)
        return True
    if len(a) > 2 and len(b) > 2 and a[0] == b[0] and a[-1] == b[-1] and a[0] in "([" and a[-1] in ")]":
        parts, others = _parts(a[1:-1]), _parts(b[1:-1])
        if parts and others and len(parts) == len(others) > 1:
            return all(_same(part, other) for part, other in zip(parts, others, strict=True))
    return False


def _parts(text: str) -> list[str] | None:
    """Split at the commas outside all brackets; nothing when the brackets do not match up.

    Half-open intervals are why any closing bracket may close any opening one.
    """
    parts, depth, start = [], 0, 0
    for place, char in enumerate(text):
        depth += (char in _OPEN) - (char in _CLOSE)
        if depth < 0:
            return None
        if char == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    parts.append(text[start:])
    return parts if depth == 0 else None
