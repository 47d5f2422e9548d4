r"""MATH-500: competition mathematics, judged by math-verify against the whole reference solution.

`flexible`, which the papers report, gives math-verify the whole response, as the task `minerva_math500` of
lm-evaluation-harness does (0.4.9.2 and later). `strict` gives it only the answer in Minerva's sentence
`Final Answer: The final answer is X. I hope it is correct.`, which must be there.

The prompt is Minerva's. Its four worked examples are other people's text and are not shipped: they are read
from a file of `problem` and `solution` rows, or left out.
"""

from __future__ import annotations

import importlib.metadata
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ripple.errors import RippleError
from ripple.tasks.base import Item, Verdict, cut, paired
from ripple.tasks.published.base import NO_ANSWER, Benchmark, check_shots
from ripple.tasks.published.data import DataFile, DataRow, find_file, read_file

FIELDS = {"problem": str, "solution": str, "answer": str, "subject": str, "level": int}
SHOT_FIELDS = {"problem": str, "solution": str}
TIME_LIMIT_S = 5  # of math-verify for one parse or one comparison; its own default, and the harness's

# One pass over the line; what ends the answer is looked for afterwards, or long runs of blanks take minutes.
_SENTENCE = re.compile(r"Final Answer:\s*The final answer is:?[ \t]*(\S[^\n]*)")
_END = "I hope it is correct"
_DELIMITED = re.compile(r"(?<!\\)\$|\\[(\[]")  # marks of TeX's mathematics


def question(row: DataRow) -> str:
    """Return the problem as the model sees it."""
    return f"Problem:\n{row['problem']}\n\nSolution:"


def final_answer(text: str) -> str | None:
    """Return the X of the first sentence `Final Answer: The final answer is X. I hope it is correct.`."""
    match = _SENTENCE.search(text)
    if match is None:
        return None
    return match.group(1).split(_END, 1)[0].strip().removesuffix(".").strip() or None


class Math500(Benchmark):
    """Competition mathematics."""

    name = "math500"
    summary = "competition mathematics, judged by math-verify"
    headline = "flexible"
    default_shots = 4
    stops = ("Problem:",)

    @classmethod
    def open(cls, data: Path, shots: int | None = None, shots_file: Path | None = None) -> Math500:
        """Read the test file, and the worked examples where a file of them is given."""
        notes = [f"Judged by math-verify {_version()} against the whole reference solution."]
        test = read_file(find_file(data, "math500", ("test.jsonl", "test.jsonl.gz")), FIELDS)
        if shots_file is None:
            if shots:
                raise RippleError(
                    f"The worked examples of math500 are not shipped with ripple: name a file of {shots} "
                    "rows with 'problem' and 'solution' (--shots-file), or ask for 0 shots."
                )
            notes.append(
                "Run 0-shot: the four Minerva examples are not shipped and no --shots-file was given."
            )
            return cls([test], _items(cls.name, test, ()), 0, notes)
        examples = read_file(shots_file, SHOT_FIELDS)
        k = check_shots(cls.name, shots, cls.default_shots, len(examples.rows))
        return cls([test, examples], _items(cls.name, test, examples.rows[:k]), k, notes)

    def judge_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[Verdict]:
        """Return both marks of each response and what math-verify was given or took for its answer."""
        return [self._judge(item, cut(text, self.stops)) for item, text in paired(items, texts)]

    def _judge(self, item: Item, text: str) -> Verdict:
        gold, response = _parse(item.solution), _parse(text)
        sentence = final_answer(text)
        # What has no marks of mathematics around it is put between dollars: math-verify would take one of
        # its numbers for the answer, such as the 3 of `3\sqrt{13}`.
        wrapped = sentence if sentence is None or _DELIMITED.search(sentence) else f"${sentence}$"
        marks = {
            "strict": wrapped is not None and _agree(gold, _parse(wrapped)),
            "flexible": _agree(gold, response),
        }
        # A parse is the value, where there is one, and the text that it was read from.
        spelled = next((part for part in response if isinstance(part, str)), NO_ANSWER)
        return self.verdict({"strict": sentence or NO_ANSWER, "flexible": spelled}, marks)


def _version() -> str:
    """Return math-verify's version, or say how to install it."""
    try:
        import math_verify  # noqa: F401
    except ImportError:
        raise RippleError(
            "math500 is judged by the package math-verify, which is not installed: "
            "pip install 'ripple-dllm[math]'."
        ) from None
    return importlib.metadata.version("math-verify")


def _parse(text: str) -> list[Any]:
    import math_verify

    return list(math_verify.parse(text, parsing_timeout=_time_limit()))


def _agree(gold: list[Any], answer: list[Any]) -> bool:
    import math_verify

    return bool(math_verify.verify(gold, answer, timeout_seconds=_time_limit()))


def _time_limit() -> int | None:
    """Return math-verify's time limit: it is a signal, which only the main thread can receive."""
    return TIME_LIMIT_S if threading.current_thread() is threading.main_thread() else None


def _items(name: str, test: DataFile, examples: Sequence[DataRow]) -> list[Item]:
    shown = "".join(f"{question(row)} {row['solution']}\n\n" for row in examples)
    return [
        Item(
            id=f"{name}/test/{index}",
            task=name,
            kind=f"{row['subject']}, level {row['level']}",
            prompt=shown + question(row),
            solution=f" {row['solution']}",
            answer=row["answer"],
        )
        for index, row in enumerate(test.rows)
    ]
