"""MATH-500: competition mathematics, scored by math_verify where it is installed, else by our own rules.

The prompt is Minerva's, as in the harness's `minerva_math500`. Its four worked examples are other people's
text and are not shipped: they are read from a file of `problem` and `solution` rows, or left out.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Sequence
from pathlib import Path

import ripple.benchmarks.latex as latex
from ripple.benchmarks.base import Benchmark, Verdict, check_shots, cut
from ripple.benchmarks.data import Row, Source, find, read
from ripple.errors import RippleError, unknown
from ripple.tasks.base import Item

FIELDS = {"problem": str, "solution": str, "answer": str, "subject": str, "level": int}
SHOT_FIELDS = {"problem": str, "solution": str}
JUDGES = ("auto", "math_verify", "ours")
NOTHING = "[invalid]"

_SAID = {
    "math_verify": "Judged by math_verify against the whole reference solution (harness 0.4.9.2 and later).",
    "ours": "Judged by our own comparison: math_verify (extra `math`) is not installed or not wanted.",
}


def choose_judge(judge: str) -> str:
    """Return which judge to use: the named one, or math_verify where it is installed."""
    if judge not in JUDGES:
        raise unknown("judge", judge, JUDGES)
    installed = importlib.util.find_spec("math_verify") is not None
    if judge == "math_verify" and not installed:
        raise RippleError("The judge 'math_verify' is not installed: pip install 'ripple-dllm[math]'.")
    return ("math_verify" if installed else "ours") if judge == "auto" else judge


def ask(row: Row) -> str:
    """Return the problem as the model sees it."""
    return f"Problem:\n{row['problem']}\n\nSolution:"


def verified(text: str, solution: str) -> bool:
    """Ask math_verify whether a response agrees with the reference solution."""
    library = importlib.import_module("math_verify")
    # Its time limit is a signal, which only the main thread can receive.
    limit = 5 if threading.current_thread() is threading.main_thread() else None
    gold = library.parse(solution, parsing_timeout=limit)
    target = library.parse(text, parsing_timeout=limit)
    return bool(library.verify(gold, target, timeout_seconds=limit))


class Math500(Benchmark):
    """Competition mathematics."""

    name = "math500"
    headline = "flexible"
    default_shots = 4
    stops = ("Problem:",)

    def __init__(
        self, sources: Sequence[Source], items: Sequence[Item], shots: int, notes: Sequence[str], judge: str
    ):
        super().__init__(sources, items, shots, notes)
        self.judge = judge

    @classmethod
    def open(
        cls, data: Path, shots: int | None = None, shots_file: Path | None = None, judge: str = "auto"
    ) -> Math500:
        """Read the test file, and the worked examples where a file of them is given."""
        judge = choose_judge(judge)
        test = read(find(data, "math500", ("test.jsonl", "test.jsonl.gz")), FIELDS)
        notes = [_SAID[judge]]
        if shots_file is None:
            if shots:
                raise RippleError(
                    f"The worked examples of math500 are not shipped with ripple: name a file of {shots} "
                    "rows with 'problem' and 'solution' (--shots-file), or ask for 0 shots."
                )
            notes.append(
                "Run 0-shot: the four Minerva examples are not shipped and no --shots-file was given."
            )
            return cls([test], _items(cls.name, test, ()), 0, notes, judge)
        examples = read(shots_file, SHOT_FIELDS)
        k = check_shots(cls.name, shots, cls.default_shots, len(examples.rows))
        return cls([test, examples], _items(cls.name, test, examples.rows[:k]), k, notes, judge)

    def details(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[Verdict]:
        """Return both marks of each response; the strict one wants the sentence with the final answer."""
        verdicts = []
        for item, text in zip(items, texts, strict=True):
            kept = cut(text, self.stops)
            strict, loose = latex.final_sentence(kept), latex.any_answer(kept)
            if self.judge == "math_verify":
                flexible = verified(kept, item.solution)
            else:
                flexible = loose is not None and latex.same(loose, item.answer)
            found = {"strict": strict or NOTHING, "flexible": loose or NOTHING}
            marks = {"strict": strict is not None and latex.same(strict, item.answer), "flexible": flexible}
            verdicts.append(self.verdict(found, marks))
        return verdicts


def _items(name: str, test: Source, examples: Sequence[Row]) -> list[Item]:
    shown = "".join(f"{ask(row)} {row['solution']}\n\n" for row in examples)
    return [
        Item(
            id=f"{name}/test/{index}",
            task=name,
            kind=f"{row['subject']}, level {row['level']}",
            prompt=shown + ask(row),
            solution=f" {row['solution']}",
            answer=row["answer"],
        )
        for index, row in enumerate(test.rows)
    ]
