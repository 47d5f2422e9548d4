"""GSM8K: grade-school word problems, 5-shot, scored by the last number of the response (flexible).

The prompt, the stop strings, the two extraction rules and the comparison are those of the task `gsm8k` of
lm-evaluation-harness (0.4.8 to 0.4.13), so that numbers can be compared.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import ripple.tasks.published.hub as hub
from ripple.errors import RippleError, unknown
from ripple.tasks.base import Item, Verdict, cut, paired
from ripple.tasks.published.base import NO_ANSWER, Benchmark, check_shots
from ripple.tasks.published.data import DataFile, DataRow, find_file, read_file, sibling

FIELDS = {"question": str, "answer": str}
SAMPLERS = ("harness", "first")
HARNESS_SEED = 1234  # the harness's default seed for worked examples

_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
# In this order: commas, dollar signs, everything up to the last mark, one final period.
_IGNORED = tuple(re.compile(rule) for rule in (r",", r"\$", r"(?s).*#### ", r"\.$"))


def strict_answer(text: str) -> str:
    """Return the number after the first `#### `."""
    numbers = _STRICT.findall(text)
    return numbers[0].strip() if numbers else NO_ANSWER


def flexible_answer(text: str) -> str:
    """Return the last thing that looks like a number."""
    numbers = _FLEXIBLE.findall(text)
    return next(group for group in numbers[-1] if group).strip() if numbers else NO_ANSWER


def same(answer: str, gold: str) -> bool:
    """Compare two answers as text, after what the harness ignores has been taken out of both."""
    for rule in _IGNORED:
        answer, gold = rule.sub("", answer), rule.sub("", gold)
    return answer.lower() == gold.lower()


def question(row: DataRow) -> str:
    """Return the question as the model sees it."""
    return f"Question: {row['question']}\nAnswer:"


def choose(sampler: str, n_items: int, pool: int, shots: int) -> list[list[int]]:
    """Return the rows of the training file that each item's prompt shows.

    `harness` draws anew for each item, in file order, from one generator: what the harness does for this
    task in one process (its several processes each start the generator again, so there the examples depend
    on how many there are). `first` shows the first rows to every item, so prompts share a prefix.
    """
    if sampler not in SAMPLERS:
        raise unknown("sampler", sampler, SAMPLERS)
    if sampler == "first":
        return [list(range(shots))] * n_items
    rng = random.Random(HARNESS_SEED)
    return [rng.sample(range(pool), shots) for _ in range(n_items)]


class Gsm8k(Benchmark):
    """Grade-school word problems."""

    name = "gsm8k"
    summary = "grade-school word problems, 5-shot, scored by the last number"
    headline = "flexible"  # LLaDA rarely writes the `####`; the papers report this mark
    default_shots = 5
    stops = ("Question:", "</s>", "<|im_end|>")

    @classmethod
    def open(cls, data: Path, shots: int | None = None, sampler: str = "harness") -> Gsm8k:
        """Read the test file, and the training file for the worked examples."""
        test = _read(
            find_file(data, "gsm8k", ("test.jsonl", "test.jsonl.gz", f"main/{hub.parquet_file('test')}"))
        )
        sources = [test]
        pool: tuple[DataRow, ...] = ()
        wanted = cls.default_shots if shots is None else shots
        if wanted:
            path = sibling(test.path, ("train.jsonl", "train.jsonl.gz", hub.parquet_file("train")))
            if path is None:
                raise RippleError(
                    f"The worked examples of gsm8k come from train.jsonl(.gz) beside {test.path}, which is "
                    "missing: put it there or ask for 0 shots."
                )
            sources.append(_read(path))
            pool = sources[1].rows
        k = check_shots(cls.name, wanted, cls.default_shots, len(pool))
        chosen = choose(sampler, len(test.rows), len(pool), k)
        items = [
            Item(
                id=f"{cls.name}/test/{index}",
                task=cls.name,
                kind="word problem",
                prompt="".join(f"{question(pool[i])} {pool[i]['answer']}\n\n" for i in chosen[index])
                + question(row),
                solution=f" {row['answer']}",
                answer=row["answer"].split("#### ")[-1].strip(),
            )
            for index, row in enumerate(test.rows)
        ]
        note = f"Worked examples: {k}, chosen by the sampler {sampler!r}."
        return cls(sources, items, k, (note,) if k else ())

    def judge_many(self, items: Sequence[Item], texts: Sequence[str], workers: int = 0) -> list[Verdict]:
        """Return both marks of each response and the number that each rule takes."""
        verdicts = []
        for item, text in paired(items, texts):
            kept = cut(text, self.stops)
            answers = {"strict": strict_answer(kept), "flexible": flexible_answer(kept)}
            marks = {mark: same(answer, item.answer) for mark, answer in answers.items()}
            verdicts.append(self.verdict(answers, marks))
        return verdicts


def _read(path: Path) -> DataFile:
    source = read_file(path, FIELDS)
    for index, row in enumerate(source.rows):
        if not _STRICT.search(row["answer"]):
            raise source.row_error(index, "the answer has no final number after '#### '")
    return source
