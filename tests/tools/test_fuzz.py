"""A slice of the fuzzing in `tools/fuzz.py`, and that it notices what it is there to notice."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from ripple.errors import LONGEST, RippleError
from ripple.files import read_lines
from ripple.server.failures import Refusal
from tools import fuzz
from tools.mutations import damaged_bytes, damaged_json, damaged_words
from tools.surfaces import SURFACES
from tools.surfaces.base import Surface, Unclean, check_sentence
from tools.surfaces.http import check_answer
from tools.surfaces.words import check_complaint

SLICE = {
    "config": 400, "checkpoint": 40, "trace": 600, "results": 400, "rows": 300, "toml": 150, "http": 300,
    "socket": 12, "cli": 40, "arguments": 100,
}  # fmt: skip


def test_every_surface_has_its_slice() -> None:
    assert SLICE.keys() == SURFACES.keys() and sum(one.n for one in SURFACES.values()) >= 1_000_000


@pytest.mark.parametrize("name", SLICE)
def test_malformed_inputs_are_accepted_or_refused_in_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with SURFACES[name](tmp_path) as surface:
        outcomes = [fuzz.feed(surface, number) for number in range(SLICE[name])]
    assert [what for _, what in outcomes if what] == []
    n_refused = sum(outcome == "refused" for outcome, _ in outcomes)
    assert n_refused > SLICE[name] / 5, "the damages are too mild"


@pytest.mark.parametrize("name", ["config", "trace", "results", "http", "arguments"])
def test_an_input_follows_from_its_number(name: str, tmp_path: Path) -> None:
    cases = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        with SURFACES[name](folder) as surface:
            cases.append([surface.case(random.Random(f"{name} {number}")) for number in range(50)])
    assert cases[0] == cases[1]


class _Faulty(Surface):
    """Fails in every way at some number, which its case is."""

    name, n = "faulty", 8

    def case(self, rng: random.Random) -> int:
        first = [random.Random(f"faulty {number}").random() for number in range(self.n)]
        return first.index(rng.random())

    def read(self, case: int) -> None:
        match case:
            case 1:
                raise KeyError("shape")
            case 2:
                os.kill(os.getpid(), signal.SIGKILL)
            case 3:
                raise RippleError("no sentence")
            case 4:
                raise RippleError("Refused.")
            case 5:
                raise MemoryError


def test_what_is_not_clean_is_recorded_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SURFACES, "faulty", _Faulty)
    line = fuzz.run(0.5, ["faulty"], tmp_path)
    assert (line["n"], line["accepted"], line["refused"], line["failed"]) == (4, 1, 0, 3)
    line = fuzz.run(1, ["faulty"], tmp_path)  # goes on where it was
    assert (line["n"], line["accepted"], line["refused"], line["failed"]) == (8, 3, 1, 4)
    failures = {one["case"]: one["what"] for one in read_lines(tmp_path / "failures.jsonl")}
    assert list(failures) == ["faulty:1", "faulty:2", "faulty:3", "faulty:5"]
    assert "KeyError: 'shape' at test_fuzz.py:" in failures["faulty:1"]
    assert failures["faulty:2"] == "the process ended with -9"


@pytest.mark.parametrize("text", ["", "no end", "a\x1b[2Jb.", "a\nb.", "\ud800.", "x" * 20_000 + "."])
def test_what_is_no_sentence_is_not_clean(text: str) -> None:
    with pytest.raises(Unclean):
        check_sentence(text)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b""),
        (400, b'{"error": {}}'),
        (200, b'data: {"error": {"message": "x"}}\n\n'),
        (404, b'{"error": "x"}'),
    ],
)
def test_an_answer_that_was_not_promised_is_not_clean(status: int, body: bytes) -> None:
    with pytest.raises((Unclean, TypeError)):
        check_answer(status, body)


@pytest.mark.parametrize("said", ["", "Traceback\nripple: Bad.", "usage: ripple\n"])
def test_a_command_says_one_sentence(said: str) -> None:
    with pytest.raises(Unclean):
        check_complaint(said, is_debug=False)
    check_complaint("Traceback ...\nripple: Bad.\n", is_debug=True)


def test_damages_change_nearly_every_input() -> None:
    rng, value, words = (
        random.Random(1),
        {"a": [1, 2.5, "x"], "b": {"c": None}},
        ["view", "t.jsonl", "--json"],
    )
    assert sum(damaged_bytes(b"abcdef" * 9, rng) == b"abcdef" * 9 for _ in range(500)) < 25
    assert sum(damaged_json(value, rng) == b'{"a": [1, 2.5, "x"], "b": {"c": null}}' for _ in range(500)) < 25
    assert sum(damaged_words(words, rng, ["--frame"]) == words for _ in range(500)) < 50
    assert value == {"a": [1, 2.5, "x"], "b": {"c": None}} and len(words) == 3


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Unknown decoder '\x1b[2J'.", "Unknown decoder '\\x1b[2J'."),
        ("got \ud800\u202e.", "got \\ud800\\u202e."),
        ("two\nlines\r\nof it.", "two lines of it."),
        ("日本 é\u3000λ.", "日本 é\u3000λ."),
    ],
)
def test_an_error_is_one_sentence_whatever_it_quotes(said: str, shown: str) -> None:
    assert str(RippleError(said)) == Refusal(400, said).message == shown
    long = str(RippleError(f"Unknown decoder {'x' * 70_000!r}."))
    assert len(long) <= LONGEST and long.startswith("Unknown decoder 'xxx") and long.endswith("xxx'.")
