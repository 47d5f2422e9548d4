"""Reading an answer out of a response: what counts and what does not."""

import pytest

from ripple.tasks import TASKS, Item
from ripple.tasks.generated.algebra import extract as boxed
from ripple.tasks.generated.words import extract as marked


def item(task: str, answer: str) -> Item:
    return Item(id="x", task=task, kind="x", prompt="", solution="", answer=answer)


@pytest.mark.parametrize(
    "text",
    [
        "#### 42",
        "####42",
        "so 41 it is\n#### 42",
        "#### 42.",
        "#### 42 apples",
        "#### $42",
        "#### 42.0",
        "#### 7\n#### 42",
        "#### 42\nand more text 99",
    ],
)
def test_words_takes_the_number_after_the_last_mark(text):
    assert TASKS["words"].score(item("words", "42"), text)


@pytest.mark.parametrize(
    "text",
    [
        "42",
        "### 42",
        "#### 421",
        "#### -42",
        "#### 4 2",
        "####",
        "#### x = 42",
        "#### 42\n#### 7",
        "#### forty-two",
    ],
)
def test_words_accepts_nothing_else(text):
    assert not TASKS["words"].score(item("words", "42"), text)


def test_words_reads_thousands_and_negative_numbers():
    assert TASKS["words"].score(item("words", "1234"), "#### 1,234")
    assert TASKS["words"].score(item("words", "-5"), "#### -5")
    assert marked("no mark") is None


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{-7}",
        "x = 3, so \\boxed{-7}.",
        "\\boxed{3} no, \\boxed{-7}",
        "\\boxed{ -7 }",
        "\\boxed{x = -7}",
        "$\\boxed{-7}$",
        "\\boxed{-7.0}",
        "\\boxed{-7} and an open \\boxed{",
    ],
)
def test_algebra_takes_the_last_complete_box(text):
    assert TASKS["algebra"].score(item("algebra", "-7"), text)


@pytest.mark.parametrize(
    "text", ["-7", "\\boxed{7}", "\\boxed{-7", "\\boxed{}", "\\boxed{-7 or 7}", "boxed{-7}", "\\boxed{-7x}"]
)
def test_algebra_accepts_nothing_else(text):
    assert not TASKS["algebra"].score(item("algebra", "-7"), text)


def test_boxes_may_hold_braces():
    assert boxed("\\boxed{\\frac{1}{2}}") == "\\frac{1}{2}"
    assert boxed("nothing") is None
