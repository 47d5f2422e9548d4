"""Which answer is taken from a response, and when it is the same as the reference."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import math_verify
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ripple.tasks.published.gsm8k as gsm8k
import ripple.tasks.published.math500 as math500
from ripple.errors import RippleError
from ripple.tasks import Item, open_benchmark
from ripple.tasks.published.math500 import Math500, final_answer
from tests.tasks.published import rows


@pytest.mark.parametrize(
    ("text", "strict", "flexible"),
    [
        ("so 3*4=12\n#### 12", "12", "12"),
        ("#### 5 no, wait\n#### 6", "5", "6"),  # the first mark, the last number
        ("#### -1,234.5", "-1,234.5", "-1,234.5"),
        ("####12", "[invalid]", "12"),  # strict wants the space
        ("#### $12", "[invalid]", "$12"),
        ("She pays $1,500.", "[invalid]", "$1,500."),
        ("It weighs 7 kg", "[invalid]", "7"),
        ("It is -7", "[invalid]", "-7"),
        ("the ratio is 3/4", "[invalid]", "4"),  # fractions are not read: the harness's rule
        ("12 apples, then nothing ...", "[invalid]", "..."),  # dots count as a number there
        ("3 kg, so 1,250.50 dollars\n#### 1,250.50 dollars", "1,250.50", "1,250.50"),  # units behind it
        ("#### 7\n#### 8\n#### nine", "7", "8"),
        ("#### - 5", "[invalid]", "5"),  # a blank behind the sign
        ("####  12", "[invalid]", "12"),
        ("temperature: -12.5 degrees", "[invalid]", "-12.5"),
        ("50% of 80 is 40.", "[invalid]", "40."),
        (r"so it is \boxed{18}", "[invalid]", "18"),
        (r"$\frac{3}{4}$", "[invalid]", "4"),
        ("#### 1.000.000", "1.000.000", "1.000.000"),
        ("٣ apples", "[invalid]", "[invalid]"),  # only ASCII digits
        ("no digits", "[invalid]", "[invalid]"),
        ("", "[invalid]", "[invalid]"),
    ],
)
def test_numbers_are_found_as_the_harness_finds_them(text: str, strict: str, flexible: str) -> None:
    assert gsm8k.strict_answer(text) == strict
    assert gsm8k.flexible_answer(text) == flexible


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("1,500", "1500", True),
        ("$1,500.", "1500", True),
        ("12.", "12", True),
        ("12.0", "12", False),  # compared as text
        ("12.50", "12.5", False),
        ("-7", "7", False),
        ("#### 12", "12", True),
        ("[invalid]", "12", False),
    ],
)
def test_numbers_are_compared_as_text(answer: str, gold: str, right: bool) -> None:
    assert gsm8k.same(answer, gold) is right


def test_gsm8k_gives_both_marks_and_cuts_at_the_stop(tmp_path: Path) -> None:
    bench = open_benchmark("gsm8k", rows.folder(tmp_path))
    oars, pay = bench.test_items()
    texts = [" That makes 12.\n\nQuestion: another one, 99?", " 500*3 is\n#### 1500"]
    first, second = bench.judge_many([oars, pay], texts)
    assert first.marks == {"strict": False, "flexible": True} and first.right
    assert first.found == {"strict": "[invalid]", "flexible": "12."}
    assert second.marks == {"strict": True, "flexible": True}
    assert bench.score_many([oars, pay], texts) == [True, True]
    assert not bench.score(oars, " It is 13.")


@pytest.fixture
def bench(tmp_path: Path) -> Math500:
    return Math500.open(rows.folder(tmp_path))


def item(answer: str) -> Item:
    return Item("own", "math500", "own", "", f"Thus it is $\\boxed{{{answer}}}$.", answer)


def sentence(answer: str) -> str:
    return f"Final Answer: The final answer is {answer}. I hope it is correct."


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so $\boxed{3}$", "3"),
        (r"first $\boxed{1}$, then $\boxed{\frac{1}{\sqrt{2}}}$.", r"\frac{1}{\sqrt{2}}"),
        (r"$\boxed{ \{1, 2\} }$", r"\{1, 2\}"),
        (r"$\boxed{4}$ and cut short: \boxed{", "4"),
        (r"$\fbox{9}$", "9"),
        (r"$\boxed 7$.", "7"),
        ("Thus the answer is $12$.", "12"),
        ("We get $x=1$ and then $y=2$", "y=2"),
        ("That makes 42 apples.", "42"),
        (sentence("$3.5$"), "3.5"),
        (r"\boxed", "[invalid]"),
        ("nothing here", "[invalid]"),
        ("", "[invalid]"),
    ],
)
def test_what_math_verify_takes_for_the_answer_is_told(bench: Math500, text: str, answer: str) -> None:
    (verdict,) = bench.judge_many([item("0")], [text])
    assert verdict.found["flexible"] == answer and not verdict.right


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Final Answer: The final answer is $3.5$. I hope it is correct.", "$3.5$"),
        ("Final Answer: The final answer is 3.5", "3.5"),
        ("Final Answer: The final answer is $(1,2)$.\nMore.", "$(1,2)$"),
        (
            "Final Answer: The final answer is \nFinal Answer: The final answer is: 7. I hope it is",
            "7. I hope it is",
        ),
        ("Final Answer: The final answer is 5.", "5"),
        ("Final Answer: The final answer is . I hope it is correct.", None),
        ("The final answer is 4.", None),
    ],
)
def test_the_sentence_with_the_final_answer(text: str, answer: str | None) -> None:
    assert final_answer(text) == answer


# Spellings of one answer, and answers that are not the same: how math-verify marks them is part of a result.
SAME = [
    ("0.5", r"\frac{1}{2}"),
    (r"\dfrac12", r"\frac{1}{2}"),
    ("1/2", r"\frac 12"),
    (r"\frac{-3}{4}", r"-\frac{3}{4}"),
    (r"\sqrt{2}", r"\sqrt2"),
    ("1234567", "1,234,567"),
    (r"\$32.50", "32.5"),
    ("45", r"45^\circ"),
    (r"5\text{ cm}^2", "5"),
    ("east", r"\text{east}"),
    ("x = 5", "5"),
    (r"x \in [1,2]", "[1,2]"),
    (r"\left( 3, \frac{1}{2} \right)", "(3,0.5)"),
    ("3, 1, 2", "1,2,3"),
    ("2(x+1)", "2x+2"),
    (r"6 - 5i", "-5i+6"),
    (r"(-\infty, 2] \cup [3, +\infty)", r"(-\infty,2]\cup[3,\infty)"),
]
DIFFERENT = [
    ("1", "-1"),
    (r"\frac{1}{2}", r"\frac{2}{1}"),
    ("(1,2)", "(2,1)"),
    ("1,2", "1,2,3"),
    ("3x", "3"),
    (r"3\sqrt{13}", "3"),  # as plain text it would be read as the number 3
    ("5 dollars", "5"),  # not mathematics
    (r"\frac{1}{0}", "1"),
    ("9" * 5000, "1"),
]


@pytest.mark.parametrize("delimiters", ["{}", "${}$", r"\({}\)"])
@pytest.mark.parametrize(
    ("answer", "gold", "right"), [(*p, True) for p in SAME] + [(*p, False) for p in DIFFERENT]
)
def test_the_strict_mark_compares_the_sentences_answer_with_math_verify(
    bench: Math500, answer: str, gold: str, right: bool, delimiters: str
) -> None:
    (verdict,) = bench.judge_many([item(gold)], [sentence(delimiters.format(answer))])
    assert verdict.marks["strict"] is right
    assert verdict.found["strict"] == delimiters.format(answer)


def test_math500_gives_both_marks_and_cuts_at_the_stop(bench: Math500) -> None:
    assert bench.notes[0].startswith("Judged by math-verify ") and "0-shot" in bench.notes[1]
    three, half = bench.test_items()
    text = f"It is 3/2.\n{sentence('$1.5$')}\n\nProblem:\nHalve 9, $\\boxed{{4.5}}$"
    other = f"So $\\boxed{{3}}$.\n{sentence('$4$')}"
    a, b, c, d = bench.judge_many([three, half, three, three], ["$\\boxed{3}$", text, other, "no idea"])
    assert a.marks == {"strict": False, "flexible": True} and a.right and a.found["strict"] == "[invalid]"
    assert b.marks == {"strict": True, "flexible": True} and b.found == {"strict": "$1.5$", "flexible": "1.5"}
    assert c.marks == {"strict": False, "flexible": False}  # the sentence goes before the box
    assert d.marks == {"strict": False, "flexible": False} and not d.right
    assert bench.score_many([three, half], ["so $\\boxed{3}$", "so $\\boxed{\\frac{6}{4}}$"]) == [True, True]


def test_the_flexible_mark_is_the_harness_one(bench: Math500) -> None:
    """What the harness computes for `minerva_math500`: the parse of the solution against that of the text."""
    three, half = bench.test_items()
    for text in ("so $\\boxed{3}$", "3", "It is $1.5$.", sentence("$\\frac32$"), "3/2", "x", "$x=3$"):
        for one in (three, half):
            wanted = math_verify.verify(gold=math_verify.parse(one.solution), target=math_verify.parse(text))
            assert bench.score(one, text) is bool(wanted)


def test_judging_works_in_a_thread(bench: Math500) -> None:
    """There math-verify cannot set its time limit, which is a signal."""
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(bench.score, bench.generate("test", 0), "$\\boxed{3}$").result()


def test_math500_without_its_judge_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = rows.folder(tmp_path)
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(RippleError) as error:
        open_benchmark("math500", data)
    assert str(error.value) == (
        "math500 is judged by the package math-verify, which is not installed: "
        "pip install 'ripple-dllm[math]'."
    )
    open_benchmark("gsm8k", data)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet="\\{}$()[],.0123456789abfrcqtsx=-+/^_% \n", max_size=60))
def test_no_text_breaks_the_judging(bench: Math500, text: str) -> None:
    final_answer(text)
    bench.judge_many([item("1")] * 2, [text, sentence(text)])
    gsm8k.same(gsm8k.flexible_answer(text), "1")


def test_a_response_that_repeats_itself_takes_no_time(bench: Math500) -> None:
    started = time.monotonic()
    for text in ("\\boxed{" * 5000, "$" * 20000, "1," * 10000, "answer is" + " " * 20000 + "x"):
        final_answer(text)
        final_answer(f"Final Answer: The final answer is {text}")
        bench.judge_many([item("1")], [text])
    assert time.monotonic() - started < 5


def test_a_comparison_that_does_not_end_is_stopped(bench: Math500, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math500, "TIME_LIMIT_S", 1)
    started = time.monotonic()
    assert not bench.score(item("3"), "$9^{9^{9^9}}!$")
    assert time.monotonic() - started < 5
