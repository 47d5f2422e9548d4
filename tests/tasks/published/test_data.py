"""Reading the publishers' formats: checksums, and one clear sentence for whatever is wrong."""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path

import pytest

from ripple.errors import RippleError
from ripple.tasks import BENCHMARKS, open_benchmark
from ripple.tasks.published.accounting import count_fast_dllm
from ripple.tasks.published.data import PUBLISHED, read_file
from tests.tasks.published import rows

FIELDS = {"question": str, "answer": str}


def test_a_file_its_gzip_and_its_folder_are_the_same_data(tmp_path: Path) -> None:
    plain = rows.write(tmp_path / "a.jsonl", rows.GSM_TEST)
    packed = rows.write(tmp_path / "a.jsonl.gz", rows.GSM_TEST)
    one, two = read_file(plain, FIELDS), read_file(packed, FIELDS)
    assert one.rows == two.rows and one.lines == (1, 2)
    assert one.sha256 == two.sha256 == hashlib.sha256(plain.read_bytes()).hexdigest()
    assert one.describe().startswith(f"a.jsonl: 2 rows, sha256 {one.sha256} (not a file we know")
    data = rows.folder(tmp_path / "data")
    by_folder = open_benchmark("gsm8k", data).test_items()
    assert by_folder == open_benchmark("gsm8k", data / "gsm8k").test_items()
    assert by_folder == open_benchmark("gsm8k", data / "gsm8k" / "test.jsonl").test_items()


def test_a_known_checksum_names_the_publisher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = rows.write(tmp_path / "a.jsonl", rows.GSM_TEST)
    monkeypatch.setitem(PUBLISHED, hashlib.sha256(path.read_bytes()).hexdigest(), "our own rows")
    assert read_file(path, FIELDS).describe().endswith("(our own rows)")


def test_one_json_array(tmp_path: Path) -> None:
    sanitized = [
        {
            **{k: v for k, v in row.items() if k != "text"},
            "prompt": row["text"],
            "test_imports": ["import math"],
        }
        for row in rows.MBPP
    ]
    bench = open_benchmark("mbpp", rows.write(tmp_path / "s.json", sanitized))
    assert (
        bench.generate("test", 0).prompt
        == open_benchmark("mbpp", rows.folder(tmp_path)).generate("test", 0).prompt
    )
    assert "import math" in bench.generate("test", 0).tests


LINES = [
    ('{"question": "a", "answer": "#### 1"}\n{"question": "b"\n', "line 2: not a JSON object."),
    ('{"question": "a", "answer": "#### 1"}\n\n7\n', "line 3: not a JSON object."),
    ('{"question": "a"}\n', "line 1: the field 'answer' is missing."),
    ('{"question": 5, "answer": "#### 1"}', "line 1: the field 'question' must be a string, not int."),
    ('{"question": "a", "answer": "one"}', "line 1: the answer has no final number after '#### '."),
    (
        '[{"question": "a", "answer": "#### 1"},\n {"answer": "#### 1"}]',
        "line 2: the field 'question' is missing.",
    ),
    ('[{"question": "a",\n', "not valid JSON."),
    ("", "holds no rows."),
    ("[]", "holds no rows."),
]


@pytest.mark.parametrize(("text", "said"), LINES)
def test_malformed_rows_give_one_sentence(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text(text)
    with pytest.raises(RippleError) as error:
        open_benchmark("gsm8k", path, 0)
    assert str(error.value).startswith(str(path)) and str(error.value).endswith(said)


def test_damaged_files_give_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"question": "a"}\n\xff\xfe')
    with pytest.raises(RippleError, match=r"line 2: not UTF-8 text\.$"):
        read_file(path, {})
    path.write_bytes(gzip.compress(b"x" * 1000)[:-9])
    with pytest.raises(RippleError, match=r"gzipped, but damaged or cut short\.$"):
        read_file(path, {})


MBPP_ROWS = [
    ({"test_list": ["assert 1"]}, "'test_list' must hold 3 asserts"),
    ({"test_list": [1, 2, 3]}, "'test_list' must be a list of strings"),
    ({"task_id": True}, "'task_id' must be a whole number, not bool"),
    ({"text": None}, "'text' (or 'prompt') must be a string"),
    ({"task_id": 4}, "the task_id 4 is there twice"),
]


@pytest.mark.parametrize(("change", "said"), MBPP_ROWS)
def test_malformed_mbpp_rows(change: dict[str, object], said: str, tmp_path: Path) -> None:
    path = rows.write(tmp_path / "mbpp.jsonl", [*rows.MBPP[:4], {**rows.MBPP[4], **change}])
    with pytest.raises(RippleError) as error:
        open_benchmark("mbpp", path)
    assert f"line 5: the field {said}." in str(error.value) or f"line 5: {said}." in str(error.value)


def test_other_rows_that_cannot_be_used(tmp_path: Path) -> None:
    path = rows.write(tmp_path / "h.jsonl", [{**rows.HUMANEVAL[0], "entry_point": "f); import os; (f"}])
    with pytest.raises(RippleError, match="line 1: the field 'entry_point' must be the name of a function"):
        open_benchmark("humaneval", path)
    path = rows.write(tmp_path / "m.jsonl", rows.MBPP[4:])
    with pytest.raises(RippleError, match="lacks the worked example with task_id 2, 3, 4"):
        open_benchmark("mbpp", path)
    path = rows.write(tmp_path / "m.jsonl", rows.MBPP[:4])
    with pytest.raises(RippleError, match="holds no test rows"):
        open_benchmark("mbpp", path)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_missing_files_give_one_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(RippleError, match="There is no file or folder"):
        open_benchmark(name, tmp_path / "nowhere")
    with pytest.raises(RippleError, match=f"holds no {name} file; expected {name}/"):
        open_benchmark(name, tmp_path)


def test_gsm8k_without_its_training_file(tmp_path: Path) -> None:
    path = rows.write(tmp_path / "test.jsonl", rows.GSM_TEST)
    with pytest.raises(
        RippleError, match=r"come from train.jsonl\(.gz\) beside .*: put it there or ask for 0"
    ):
        open_benchmark("gsm8k", path)
    assert open_benchmark("gsm8k", path, 0).generate("test", 0).prompt.startswith("Question: Bo")
    rows.write(tmp_path / "train.jsonl", rows.GSM_TRAIN)
    with pytest.raises(RippleError, match="gsm8k can show 0 to 10 worked examples, not 11"):
        open_benchmark("gsm8k", path, 11)


WORDS = ["<eos>", "<eot>", "a", "b", "Q:"]


def decode(ids: object) -> str:
    return " ".join(WORDS[i] for i in ids)  # type: ignore[attr-defined]


def encode(text: str) -> list[int]:
    return [WORDS.index(word) for word in text.split()]


@pytest.mark.parametrize(
    ("ids", "count"),
    [
        ([2, 3, 2], 3),  # no end token
        ([2, 3, 0, 0, 0], 2),  # EOS never counts
        ([2, 1, 0, 0], 2),  # the other end token does
        ([2, 1, 3, 0, 3], 4),  # and so does what stands behind the end
        ([2, 4, 3, 3, 0], 1),  # a stop string ends the count
        ([0, 0], 0),
        ([], 0),
    ],
)
def test_tokens_are_counted_as_fast_dllm_does(ids: list[int], count: int) -> None:
    assert count_fast_dllm(ids, 0, ("Q:",), decode, encode) == count
    assert count_fast_dllm(ids, 0, ("Q:",), decode, encode, cuts=False) == sum(i != 0 for i in ids)


REAL = os.environ.get("RIPPLE_DATA", "")


@pytest.mark.skipif(not REAL, reason="RIPPLE_DATA does not name a folder with the publishers' files")
@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_published_solutions_are_right(name: str) -> None:
    bench = open_benchmark(name, Path(REAL), allow_code=True)
    assert all(source.published for source in bench.sources), [s.describe() for s in bench.sources]
    assert bench.size == {"gsm8k": 1319, "math500": 500, "humaneval": 164, "mbpp": 500}[name]
    items = bench.test_items()
    right = bench.score_many(items, [item.solution for item in items])
    wrong = {item.id for item, fine in zip(items, right, strict=True) if not fine}
    # 50: its tests call a helper that the published clean-up drops. 356: needs set-up code that the harness
    # leaves out. 112: takes about as long as the time limit.
    assert wrong <= {"humaneval/test/50", "mbpp/test/356", "mbpp/test/112"}
