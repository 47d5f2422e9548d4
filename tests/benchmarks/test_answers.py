"""Which answer is found in a response, and when two answers are the same."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ripple.benchmarks.gsm8k as gsm8k
import ripple.benchmarks.latex as latex
from ripple.benchmarks import open_benchmark
from ripple.errors import RippleError
from tests.benchmarks import rows


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
    first, second = bench.details([oars, pay], texts)
    assert first.marks == {"strict": False, "flexible": True} and first.right
    assert first.found == {"strict": "[invalid]", "flexible": "12."}
    assert second.marks == {"strict": True, "flexible": True}
    assert bench.score_many([oars, pay], texts) == [True, True]
    assert not bench.score(oars, " It is 13.")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so $\boxed{3}$", "3"),
        (r"first $\boxed{1}$, then $\boxed{\frac{1}{\sqrt{2}}}$.", r"\frac{1}{\sqrt{2}}"),
        (r"$\boxed{ \{1, 2\} }$", r"\{1, 2\}"),
        (r"$\boxed{4}$ and cut short: \boxed{\frac{1}{", "4"),
        (r"$\fbox{9}$", "9"),
        (r"$\boxed 7$.", "7"),
        (r"\boxed", None),
        ("plain", None),
    ],
)
def test_the_last_complete_box_counts(text: str, answer: str | None) -> None:
    assert latex.boxed(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Final Answer: The final answer is $3.5$. I hope it is correct.", "$3.5$"),
        ("Final Answer: The final answer is 3.5", "3.5"),
        ("Final Answer: The final answer is $(1,2)$.\nMore.", "$(1,2)$"),
        ("The final answer is 4.", None),
    ],
)
def test_the_sentence_with_the_final_answer(text: str, answer: str | None) -> None:
    assert latex.final_sentence(text) == answer


def test_without_box_and_sentence_the_answer_is_guessed() -> None:
    assert latex.any_answer("Thus the answer is $12$.") == "$12$"
    assert latex.any_answer("We get $x=1$ and then $y=2$") == "y=2"
    assert latex.any_answer("nothing here") is None


SAME = [
    (r"\frac{1}{2}", "0.5"),
    (r"\dfrac12", r"\frac{1}{2}"),
    (r"\frac 12", "1/2"),
    (r"-\frac{3}{4}", r"\frac{-3}{4}"),
    (r"1\frac{1}{2}", "1.5"),
    (r"\frac7{12}", r"\frac{7}{12}"),
    (r"\sqrt2", r"\sqrt{2}"),
    ("1,234,567", "1234567"),
    (r"20,\!480", "20480"),
    ("20{,}480", "20480"),
    (r"\$32.50", "32.5"),
    (r"$12$.", "12"),
    (r"45^\circ", "45"),
    (r"45^{\circ}", "45"),
    (r"30\%", "30"),
    (r"5\text{ cm}^2", "5"),
    ("5 dollars", "5"),
    (r"72 \mbox{ furlongs}^2", "72"),
    (r"\text{east}", "east"),
    (r"\text{(B)}", "B"),
    ("x = 5", "5"),
    (r"x \in [1,2]", "[1,2]"),
    (r"\left( 3, \frac{1}{2} \right)", "(3,0.5)"),
    ("3, 1, 2", "1,2,3"),
    (r"1 \text{ and } 2", "2, 1"),
    ("12_{5}", "12_5"),
    ("x^{2}", "x^2"),
    (r"x \leq 3", r"x\le3"),
    (".5", "0.50"),
    (r"\boxed{7}", "7"),
    (r"-1,000\text{ m/s}", "-1000"),
    (r"\text{ 5 } ", "5"),
    (r"(-\infty, 2] \cup [3, +\infty)", r"(-\infty,2]\cup[3,\infty)"),
    (r"\tfrac{-7}{3}", r"-\frac73"),
    ("007", "7"),
]
DIFFERENT = [
    ("1", "-1"),
    (r"\frac{1}{2}", r"\frac{2}{1}"),
    ("(1,2)", "(2,1)"),
    ("(1,2)", "[1,2)"),
    ("1,2", "1,2,3"),
    ("1,1,2", "1,2,2"),
    ("3x", "3"),
    ("123", "1,23"),
    ("", ""),
    ("", "0"),
    (r"\frac{1}{0}", "1"),
    ("9" * 5000, "1"),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_answers_that_are_the_same(a: str, b: str) -> None:
    assert latex.same(a, b) and latex.same(b, a)


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_answers_that_differ(a: str, b: str) -> None:
    assert not latex.same(a, b) and not latex.same(b, a)


@given(st.text(alphabet="\\{}$()[],.0123456789abfrcqtsx=-+/^_% \n", max_size=60))
def test_no_text_breaks_the_extraction(text: str) -> None:
    latex.any_answer(text)
    latex.same(text, "1")
    gsm8k.same(gsm8k.flexible_answer(text), "1")


def test_a_response_that_repeats_itself_takes_no_time() -> None:
    started = time.monotonic()
    for text in ("\\boxed{" * 5000, "$" * 20000, "1," * 10000, "answer is" + " " * 20000 + "x"):
        latex.any_answer(text)
        latex.same(text, text + "2")
    assert time.monotonic() - started < 5


def test_math500_by_our_own_rules(tmp_path: Path) -> None:
    bench = open_benchmark("math500", rows.folder(tmp_path), judge="ours")
    assert "our own" in bench.notes[0] and "0-shot" in bench.notes[1]
    three, half = bench.test_items()
    said = "It is 3/2.\nFinal Answer: The final answer is $1.5$. I hope it is correct.\n\n"
    said += "Problem:\nHalve 9, $\\boxed{4.5}$"
    a, b = bench.details([three, half], ["$\\boxed{3}$", said])
    assert a.marks == {"strict": False, "flexible": True} and a.right
    assert b.marks == {"strict": True, "flexible": True} and b.found["strict"] == "$1.5$"
    assert bench.score_many([three], ["no idea"]) == [False]


def test_math_verify_is_used_where_it_is_installed(tmp_path: Path) -> None:
    data = rows.folder(tmp_path)
    if importlib.util.find_spec("math_verify") is None:
        with pytest.raises(RippleError, match="not installed"):
            open_benchmark("math500", data, judge="math_verify")
        return
    bench = open_benchmark("math500", data, judge="math_verify")
    assert bench.score_many(bench.test_items(), ["so $\\boxed{3}$", "so $\\boxed{\\frac{6}{4}}$"]) == [
        True,
        True,
    ]
