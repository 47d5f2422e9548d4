"""`ripple tasks` lists the tasks and prints samples of them."""

import json

import pytest

from ripple.cli import main
from ripple.tasks import BENCHMARKS, TASKS
from tests.tasks.published import rows


def call(capsys, *argv: str) -> str:
    assert main(["tasks", *argv]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("action", [(), ("show",)])
def test_samples_are_printed(capsys, action):
    out = call(capsys, *action, "words", "--n", "2")
    assert "words/test/0" in out and "words/test/1" in out and "####" in out
    assert "words/test/2" not in out


@pytest.mark.parametrize("action", [(), ("show",)])
def test_samples_as_json_are_whole_items(capsys, action):
    out = call(capsys, *action, "programs", "--start", "4", "--json")
    items = [json.loads(line) for line in out.splitlines()]
    assert [item["id"] for item in items] == [f"programs/test/{index}" for index in (4, 5, 6)]
    assert all("assert" in item["tests"] for item in items)


def test_another_stream_is_shown(capsys):
    item = json.loads(call(capsys, "words", "--stream", "train", "--n", "1", "--json"))
    assert item["id"] == "words/train/0"


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmarks_items_are_shown_from_its_files(capsys, tmp_path, name):
    out = call(capsys, name, "--data", str(rows.folder(tmp_path)), "--n", "2", "--json")
    assert [json.loads(line)["id"] for line in out.splitlines()] == [f"{name}/test/0", f"{name}/test/1"]


@pytest.mark.parametrize("action", [(), ("list",)])
def test_without_a_name_every_task_is_listed_with_one_line(capsys, action):
    lines = call(capsys, *action).splitlines()
    assert max(map(len, lines)) < 80
    names = [line.split()[0] for line in lines if line.startswith("  ")]
    assert names == [*TASKS, *BENCHMARKS]
    assert [line for line in lines if not line.startswith("  ")] == [
        "Generated families",
        "Published benchmarks",
    ]


def test_the_list_as_json(capsys):
    tasks = [json.loads(line) for line in call(capsys, "--json").splitlines()]
    assert [task["name"] for task in tasks] == [*TASKS, *BENCHMARKS]
    assert [task["kind"] for task in tasks] == ["generated"] * 4 + ["published"] * 4
    assert {task["name"] for task in tasks if task["runs_code"]} == {
        "functions", "programs", "humaneval", "mbpp",
    }  # fmt: skip


@pytest.mark.parametrize(
    "argv, sentence",
    [
        (("show", "wrods"), "Unknown task 'wrods'. Did you mean 'words'?"),
        (("wrods",), "Unknown task 'wrods'. Did you mean 'words'?"),
        (("words", "--n", "-1"), "--n must be at least 1, got -1."),
        (("words", "--n", "0"), "--n must be at least 1, got 0."),
        (("show", "words", "--n", "two"), "Argument --n: invalid int value: 'two'."),
        (("words", "--start", "-3"), "--start must be 0 or more, got -3."),
        (("words", "--stream", "trian"), "Unknown stream 'trian'. Did you mean 'train'?"),
        (("words", "--data", "."), "Task words is generated and takes neither data nor shots."),
        (("gsm8k", "--data", "nowhere"), "There is no file or folder nowhere."),
        (("words", "algebra"), "Unexpected argument 'algebra'."),
        (("list", "words"), "Unexpected argument 'words'."),
        (("show",), "`ripple tasks show` needs the name of a task"),
        (("--n", "2"), "--n is about samples of one task: name it"),
        (("list", "--start", "2"), "--start is about samples of one task: name it"),
        (("--nn", "2"), "Unknown option '--nn'."),
    ],
)
def test_mistakes_are_one_sentence(capsys, argv, sentence):
    assert main(["tasks", *argv]) == 2
    told = capsys.readouterr()
    assert sentence in told.err and told.err.count("\n") == 1 and told.out == ""


def test_a_benchmark_ends_with_its_last_item(capsys, tmp_path):
    assert main(["tasks", "mbpp", "--data", str(rows.folder(tmp_path)), "--start", "2"]) == 2
    assert "mbpp has items 0 to 1, not 2." in capsys.readouterr().err
