"""One protocol for generated families and published benchmarks, and the permission to run a model's code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ripple.errors import RippleError
from ripple.tasks import BENCHMARKS, TASKS, Task, check_code_allowed, find_task
from tests.tasks.published import rows

NAMES = (*TASKS, *BENCHMARKS)
CODE = {"functions", "programs", "humaneval", "mbpp"}


def opened(name: str, folder: Path, **options: Any) -> Task:
    return find_task(name, rows.folder(folder) if name in BENCHMARKS else None, **options)


@pytest.mark.parametrize("name", NAMES)
def test_a_task_tells_an_evaluation_all_it_needs(name: str, tmp_path: Path) -> None:
    task = opened(name, tmp_path, allow_code=True)
    task.check_ready()
    assert task.name == name and task.runs_code is (name in CODE)
    assert task.summary and "\n" not in task.summary
    assert task.size == (1000 if name in TASKS else 2)
    items = task.test_items(2)
    assert [item.task for item in items] == [name] * 2 and items[0].id.startswith(f"{name}/test/")
    assert items[0] == task.generate("test", int(items[0].id.split("/")[2]))
    assert task.test_items(0) == []
    with pytest.raises(RippleError, match="The number of items must be 0 or more, not -1"):
        task.test_items(-1)
    facts = task.facts(chat=False)
    assert json.loads(json.dumps(facts)) == facts
    if name in TASKS:
        assert (facts, task.stops_for(True), task.stops_for(False)) == ({}, (), ())
    else:
        assert set(facts) == {"shots", "sources", "notes", "task_stops"}
        assert facts["task_stops"] == list(task.stops_for(False)) and "sha256" in facts["sources"][0]


@pytest.mark.parametrize("name", NAMES)
def test_verdicts_scores_and_single_scores_agree(name: str, tmp_path: Path) -> None:
    task = opened(name, tmp_path, allow_code=True)
    item = task.test_items(1)[0]
    texts = [item.solution, "no idea"]
    verdicts = task.judge_many([item, item], texts)
    assert [verdict.right for verdict in verdicts] == [True, False]
    assert task.score_many([item, item], texts) == [True, False]
    assert [task.score(item, text) for text in texts] == [True, False]
    marks = set() if name in TASKS else {"strict", "flexible"}
    assert all(set(verdict.marks) == set(verdict.found) == marks for verdict in verdicts)
    with pytest.raises(RippleError, match="Each item needs one response"):
        task.judge_many([item, item], texts[:1])


EMBEDDED = ("tiny-dream", "tiny-llada")


@pytest.mark.parametrize("name", ["functions", "programs"])
def test_code_runs_with_permission_or_from_a_model_that_comes_with_the_package(name: str) -> None:
    task = TASKS[name]
    check_code_allowed(task, "folder/model", True, EMBEDDED)
    check_code_allowed(task, "tiny-llada", False, EMBEDDED)
    for model in ("folder/model", "folder/tiny-llada", "tiny-llada/", "tiny"):
        with pytest.raises(RippleError, match=rf"^{name} is scored by running code .*\(--allow-code\)\.$"):
            check_code_allowed(task, model, False, EMBEDDED)


@pytest.mark.parametrize("name", ["words", "functions"])
def test_each_item_needs_one_response(name: str) -> None:
    items = TASKS[name].test_items(2)
    with pytest.raises(RippleError, match="Each item needs one response: 2 items have 3"):
        TASKS[name].score_many(items, ["", "", ""])


@pytest.mark.parametrize("name", ["words", "algebra"])
def test_tasks_without_code_need_no_permission(name: str) -> None:
    check_code_allowed(TASKS[name], "folder/model", False, EMBEDDED)


@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
def test_a_code_benchmark_is_found_only_with_permission(name: str, tmp_path: Path) -> None:
    with pytest.raises(RippleError, match=rf"^{name} is scored by running code .*\(--allow-code\)\.$"):
        opened(name, tmp_path)
    assert opened(name, tmp_path, allow_code=True).runs_code
