"""What a file of prompts may hold, and what is refused before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from ripple.batch.rows import InputRows, options_of, prompt_of
from ripple.errors import RippleError
from tests.batch.conftest import prompts, write


def test_json_lines_and_parquet_hold_the_same_rows(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "prompt": "a", "messages": None, "options": {"length": 8, "seed": None}},
        {"id": 2, "prompt": None, "messages": [{"role": "user", "content": "b"}], "options": None},
    ]
    text, table = write(tmp_path / "p.jsonl", rows), tmp_path / "p.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), table)
    for path in (text, table):
        file = InputRows.open(path)
        assert file.ids == [1, 2]
        assert [prompt_of(row, chat=False) for row in file] == ["a", rows[1]["messages"]]
        assert [options_of(row, {"length": 4}).length for row in file] == [8, 4]


@pytest.mark.parametrize(
    "text, sentence",
    [
        ('{"id": "a"}\n\n{"id": "a"}\n', "line 3: the id 'a' is that of line 1, too."),
        ('{"id": "a"}\n{"id": 1}\n', "ids must be all text or all whole numbers."),
        ('{"prompt": "x"}\n', "line 1: needs an 'id' that is text or a whole number of 64 bits."),
        ('{"id": true}\n', "line 1: needs an 'id'"),
        ('{"id": 9223372036854775808}\n', "line 1: needs an 'id'"),
        ('{"id": "\\ud800"}\n', "line 1: needs an 'id'"),
        ("[1]\n", "line 1: needs an 'id'"),
        ('{"id": 1}\n{"id"\n', "line 2: not valid JSON."),
        ("[" * 100_000, "line 1: not valid JSON."),
        ("\n", "holds no rows."),
        ("PAR1 and nothing else", "is a Parquet file, but damaged or cut short."),
    ],
)
def test_what_is_wrong_with_a_file_or_an_id_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(text)
    with pytest.raises(RippleError, match=r"p\.jsonl") as said:
        InputRows.open(path)
    assert sentence in str(said.value)


def test_any_byte_of_a_parquet_file_may_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"id": ["a"], "options": [{"length": 8}]}), path)
    whole = path.read_bytes()
    n_refused = 0
    for at in range(4, len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        try:
            InputRows.open(path)
        except RippleError:
            n_refused += 1
    assert n_refused > len(whole) / 20


def test_bytes_that_are_no_text_and_files_that_are_not_there_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'{"id": 1}\n{"id": "\xff"}\n')
    with pytest.raises(RippleError, match=r"line 2: not UTF-8 text."):
        InputRows.open(path)
    with pytest.raises(RippleError, match=r"Cannot read the prompts .*: No such file"):
        InputRows.open(tmp_path / "none")
    with pytest.raises(RippleError, match=r"Cannot read the prompts .*: Is a directory"):
        InputRows.open(tmp_path)


@pytest.mark.parametrize(
    "row, sentence",
    [
        ({}, "A row needs a 'prompt' or 'messages', and not both."),
        ({"prompt": "a", "messages": [{}]}, "and not both"),
        ({"prompt": 7}, "'prompt' must be text or a list of token ids, got 7."),
        ({"messages": "hi"}, "'messages' must be a non-empty list"),
        ({"messages": ["hi"]}, "must hold {'role': ..., 'content': ...} alone"),
        ({"prompt": "a", "options": [1]}, "'options' must be an object, got [1]."),
        ({"prompt": "a", "options": {"lenght": 8}}, "Did you mean 'length'?"),
        ({"prompt": "a", "options": {"length": 0}}, "length must be a whole number of at least 1"),
        ({"prompt": "a", "options": {"trace": True}}, "A row's options take no 'trace'"),
    ],
)
def test_what_is_wrong_with_a_row_is_one_sentence(row: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RippleError) as said:
        prompt_of(row, chat=False)
        options_of(row, {})
    assert sentence in str(said.value)


def test_a_rows_options_stand_over_the_jobs() -> None:
    job = {"decoder": "rps", "lam": 0.2, "cache": "d2", "masks": 4, "length": 16}
    assert options_of({}, job).decoder == "rps:lam=0.2"
    assert options_of({"options": {"lam": 0.3}}, job).decoder == "rps:lam=0.3"
    other = options_of({"options": {"decoder": "confidence:tau=0.8", "cache": "dual"}}, job)
    assert (other.decoder, other.policy.name, other.length) == ("confidence:tau=0.8", "dual", 16)


def test_chat_wraps_text_alone() -> None:
    assert prompt_of({"prompt": "a"}, chat=True) == [{"role": "user", "content": "a"}]
    assert prompt_of({"prompt": [1, 2]}, chat=True) == [1, 2]


def test_ids_stay_in_order(tmp_path: Path) -> None:
    assert InputRows.open(write(tmp_path / "p.jsonl", prompts(12))).ids == [f"r{i}" for i in range(12)]
