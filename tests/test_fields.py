"""Declared fields: checked, parsed, listed and written back from one declaration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ripple.errors import RippleError
from ripple.fields import (
    Interval,
    check_fields,
    fields_of,
    join_spec,
    merged,
    pairs,
    param,
    spec,
    split_commas,
    split_spec,
)


@dataclass(frozen=True)
class Sample:
    """Every kind of field."""

    share: float = param(0.5, "a share", within="(0, 1]")
    count: int = param(3, "a count", within="[1, inf)")
    few: int = param(2, "a few", within="[0, 4]")
    free: float = param(0.0, "any number")
    least: float = param(0.0, "no less than nothing", within="[0, inf)")
    more: float | None = param(None, "more than nothing", within="(0, inf)")
    flag: bool = param(False, "a flag")
    word: str = param("red", "a word", choices=("red", "green"))
    text: str = param("", "any text")
    maybe: int | None = param(None, "a count or nothing", within="[1, inf)")
    path: Path | None = param(None, "a path")

    def __post_init__(self) -> None:
        check_fields("sample", self)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("share", 0, r"sample: share must lie in \(0, 1\], got 0.0\.$"),
        ("share", math.nan, r"share must lie in \(0, 1\], got nan"),
        ("share", "x", r"share must be a number in \(0, 1\], got 'x'\.$"),
        ("share", True, "share must be a number in"),
        ("share", None, "share must be a number in"),
        ("least", "0,5", r"least must be a number of at least 0, got '0,5'"),
        ("least", -1, "least must be at least 0, got -1"),
        ("more", "x", "more must be a number above 0 or none, got 'x'"),
        ("more", 0, "more must be above 0 or none, got 0"),
        ("count", 0, r"count must be a whole number of at least 1, got 0\.$"),
        ("count", 2.0, "count must be a whole number of at least 1, got 2.0"),
        ("count", True, "count must be a whole number"),
        ("few", 5, r"few must be a whole number in \[0, 4\], got 5"),
        ("free", math.inf, "free must be a finite number, got inf"),
        ("free", "1", "free must be a number, got '1'"),
        ("flag", 1, "flag must be true or false, got 1"),
        ("flag", "no", "flag must be true or false, got 'no'"),
        ("word", "gren", r"word must be one of red, green \(did you mean 'green'\?\), got 'gren'\.$"),
        ("word", 3, "word must be text, got 3"),
        ("text", None, "text must be text, got None"),
        ("maybe", 0, "maybe must be a whole number of at least 1 or none, got 0"),
        ("path", 3, "path must be a path or none, got 3"),
    ],
)
def test_a_bad_value_gets_one_sentence(field: str, value: object, sentence: str) -> None:
    with pytest.raises(RippleError, match=sentence) as told:
        Sample(**{field: value})
    assert "\n" not in str(told.value)


def test_numbers_become_plain_ones() -> None:
    made = Sample(share=1, count=np.int64(4), free=np.float32(0.5), flag=np.bool_(True), path="a/b")
    assert [type(value) for value in (made.share, made.count, made.free, made.flag)] == [
        float,
        int,
        float,
        bool,
    ]
    assert made == Sample(share=1.0, count=4, free=0.5, flag=True, path=Path("a/b"))


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("share", "0.25", 0.25), ("count", "7", 7), ("flag", "yes", True), ("flag", "False", False),
        ("maybe", "none", None), ("maybe", "3", 3), ("text", "none", "none"), ("path", "x/y", Path("x/y")),
    ],
)  # fmt: skip
def test_text_becomes_a_value_of_the_fields_kind(field: str, text: str, value: object) -> None:
    assert getattr(merged("sample", Sample(), {field: text}), field) == value


@pytest.mark.parametrize(
    ("field", "text", "sentence"),
    [
        ("count", "many", "sample: count must be a whole number of at least 1, got 'many'"),
        ("count", "1" * 5000, "count must be a whole number"),
        ("flag", "maybe", "flag must be true or false, got 'maybe'"),
        ("share", "inf", r"share must lie in \(0, 1\]"),
        ("cuont", "1", "Unknown field of sample, 'cuont'. Did you mean 'count'"),
    ],
)
def test_bad_text_gets_one_sentence(field: str, text: str, sentence: str) -> None:
    with pytest.raises(RippleError, match=sentence):
        merged("sample", Sample(), {field: text})


def test_fields_tell_what_a_listing_needs() -> None:
    fields = fields_of(Sample)
    assert [fields[name].allowed for name in ("share", "few", "word", "flag", "maybe")] == [
        "(0, 1]", "[0, 4]", "red | green", "true or false", "[1, inf)"
    ]  # fmt: skip
    assert fields["maybe"].may_be_none and fields["maybe"].kind is int
    assert fields["share"].option == "--share" and fields["share"].about == "a share"


@given(
    st.builds(
        Sample,
        share=st.floats(0.001, 1),
        count=st.integers(1, 10**9),
        free=st.floats(allow_nan=False, allow_infinity=False),
        flag=st.booleans(),
        word=st.sampled_from(["red", "green"]),
        maybe=st.none() | st.integers(1, 99),
    )
)
def test_a_spec_reads_back_to_the_same_object(made: Sample) -> None:
    name, given_fields = split_spec(spec("sample", made))
    assert name == "sample" and merged("sample", Sample(), given_fields) == made


@given(st.lists(st.sampled_from(["a", "b=1", "c=(d:e=1,f=2)", "g=(h:(i,j),k)"]), min_size=1))
def test_commas_in_brackets_split_nothing(parts: list[str]) -> None:
    assert split_commas(",".join(parts)) == parts


def test_a_spec_is_a_name_and_its_fields() -> None:
    assert split_spec(" rps : lam=0.2 , k-max=3,standard=(eb:gamma=1,proxy=margin) ") == (
        "rps", {"lam": "0.2", "k_max": "3", "standard": "eb:gamma=1,proxy=margin"},
    )  # fmt: skip
    assert split_spec("dual") == ("dual", {}) and join_spec("dual", {}) == "dual"
    for items, sentence in ((["lam"], "field=value, got 'lam'"), (["a=1", "a=2"], "a is set twice")):
        with pytest.raises(RippleError, match=sentence):
            pairs(items)


@pytest.mark.parametrize("text", ["0, 1", "(1, 2", "[a, b]", ""])
def test_a_range_that_cannot_be_read_is_a_mistake_of_the_programmer(text: str) -> None:
    with pytest.raises(ValueError, match="not an interval"):
        Interval.parse(text)


@given(st.floats(-3, 3))
def test_a_range_holds_what_lies_between_its_ends(value: float) -> None:
    holds: dict[str, Any] = {
        "[0, 1]": 0 <= value <= 1, "(0, 1)": 0 < value < 1, "[0, inf)": value >= 0, "(-inf, 1]": value <= 1
    }  # fmt: skip
    assert {text: Interval.parse(text).holds(value) for text in holds} == holds
