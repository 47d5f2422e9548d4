"""The task families: solvable, split, reproducible, and phrased in more than one way."""

import hashlib
import os
import random
import subprocess
import sys

import pytest

from ripple.errors import RippleError
from ripple.tasks import TASKS, get_task
from ripple.tasks.generated.base import DEVELOPMENT_START, TEST_ITEMS, in_test
from ripple.tasks.generated.exercises import EXERCISES
from ripple.tasks.generated.functions import any_problem
from ripple.tasks.generated.stories import STORIES

FAMILIES = sorted(TASKS)


@pytest.mark.parametrize("name", ["words", "algebra"])
def test_every_text_item_is_solved_by_its_own_solution(name):
    task = TASKS[name]
    items = [task.generate("train", i) for i in range(400)]
    assert all(task.score(item, item.solution) for item in items)


@pytest.mark.parametrize("name", ["functions", "programs"])
def test_every_code_item_is_solved_by_its_own_solution(name):
    # The sandbox itself is tested elsewhere; here 300 items are checked in this process.
    task = TASKS[name]
    for i in range(300):
        item = task.generate("train", i)
        whole = item.prompt + item.solution if name == "functions" else item.solution
        exec(f"{whole}\n\n{item.tests}", {})


@pytest.mark.parametrize("name", ["functions", "programs"])
def test_code_is_scored_by_its_hidden_tests_in_the_sandbox(name):
    task = TASKS[name]
    items = [task.generate("test", i) for i in range(6)]
    right = [item.solution for item in items]
    wrong = [text.replace("return ", "return None and ") for text in right]
    assert task.score_many(items, right) == [True] * 6
    assert task.score_many(items, wrong) == [False] * 6
    assert not task.score(items[0], "")


@pytest.mark.parametrize("name", ["words", "algebra"])
def test_a_wrong_number_or_no_number_scores_false(name):
    task = TASKS[name]
    for i in range(100):
        item = task.generate("train", i)
        mark = "#### {}" if name == "words" else "\\boxed{{{}}}"
        assert not task.score(item, mark.format(int(item.answer) + 1))
        assert not task.score(item, item.answer)
        assert not task.score(item, "")


def test_all_implementations_of_a_problem_agree():
    for i in range(300):
        problem = any_problem(random.Random(f"agree/{i}"))
        results = [problem.results(body) for body in problem.bodies]
        assert all(r == results[0] for r in results), problem.key
        assert len(set(problem.bodies)) >= 2, problem.key


@pytest.mark.parametrize("name", FAMILIES)
def test_the_test_set_is_fixed_distinct_and_never_trained_on(name):
    task = TASKS[name]
    items = task.test_items(150)
    prompts = {item.prompt for item in items}
    assert len(prompts) == 150
    assert TEST_ITEMS == 1000
    trained = {task.generate("train", i).prompt for i in range(2000)}
    assert not prompts & trained


@pytest.mark.parametrize("name", FAMILIES)
def test_the_split_is_decided_by_the_problem_and_by_nothing_else(name):
    task = TASKS[name]
    rng = random.Random("split")
    drafts = [task.draft(rng) for _ in range(600)]
    share = sum(in_test(draft.problem) for draft in drafts) / len(drafts)
    assert 0.02 < share < 0.13  # one in sixteen
    sides: dict[str, set[bool]] = {}
    for draft in drafts:
        sides.setdefault(draft.prompt, set()).add(in_test(draft.problem))
    assert all(len(side) == 1 for side in sides.values())  # a prompt never sits on both sides


@pytest.mark.parametrize("name", FAMILIES)
def test_development_items_share_no_problem_with_the_test_items(name):
    task = type(TASKS[name])()
    task.size = 80  # a smaller test set, which is quicker to write
    tested = {task._draft("test", int(item.id.split("/")[2])).problem for item in task.test_items()}
    items = task.development_items(50)
    at = {int(item.id.split("/")[2]): item for item in items}
    assert items == [task.generate("test", index) for index in sorted(at)]
    assert len({item.prompt for item in items}) == 50
    prompts, n_repeated = set(), 0
    for index in range(DEVELOPMENT_START, max(at) + 1):
        draft = task._draft("test", index)
        assert (index in at) == (draft.problem not in tested and draft.prompt not in prompts)
        prompts.add(draft.prompt)
        n_repeated += draft.problem in tested
    assert n_repeated or name == "words"  # the plain stream does repeat test problems


# Over the first 20 items of both streams; a change here changes the test set and needs new models.
GOLDEN = {
    "words": "3138fc3da89cb1a9",
    "algebra": "7ff5273022730cf3",
    "functions": "6ae4d7ba6af79bc4",
    "programs": "4196811419137589",
}


def fingerprint(name: str) -> str:
    digest = hashlib.sha256()
    for stream in ("train", "test"):
        for i in range(20):
            item = TASKS[name].generate(stream, i)
            digest.update(
                "\0".join((item.id, item.kind, item.prompt, item.solution, item.answer, item.tests)).encode()
            )
    return digest.hexdigest()[:16]


@pytest.mark.parametrize("name", FAMILIES)
def test_items_are_the_same_on_every_machine(name):
    assert fingerprint(name) == GOLDEN[name]


def test_items_do_not_depend_on_the_hash_seed_of_a_process():
    code = "from tests.tasks.generated.test_families import fingerprint; print(fingerprint('functions'))"
    out = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert out[0] == out[1] == fingerprint("functions") + "\n"


@pytest.mark.parametrize("kind", sorted(STORIES))
def test_every_story_is_told_and_solved_in_several_ways(kind):
    stories = [STORIES[kind](random.Random(f"{kind}/{i}")) for i in range(300)]
    assert len({s.text for s in stories}) > 280
    assert {len(labels) >= 1 for s in stories for labels, _, _ in s.steps} == {True}
    assert min(len(labels) for s in stories for labels, _, _ in s.steps) >= 2
    counts = {len(s.steps) for s in stories}
    assert counts <= {2, 3, 4, 5}
    for story in stories:
        for _, expression, value in story.steps:
            assert eval(expression) == value
            assert 0 <= value < 1000


@pytest.mark.parametrize("kind", sorted(EXERCISES))
def test_every_exercise_has_steps_that_can_be_said_in_several_ways(kind):
    for i in range(100):
        work = EXERCISES[kind](random.Random(f"{kind}/{i}"))
        assert len(set(work.asks)) >= 2
        assert all(len(set(ways)) >= 3 for ways in work.steps)
        assert abs(work.answer) < 1000


@pytest.mark.parametrize("name", FAMILIES)
def test_one_prompt_does_not_determine_the_response(name):
    task = TASKS[name]
    solutions = {}
    openings = set()
    for i in range(300):
        item = task.generate("train", i)
        openings.add(
            item.solution.split("\n")[0].split(" ")[0] if name != "functions" else item.solution.strip()[:3]
        )
        solutions[item.prompt] = item.solution
    assert len(openings) >= (1 if name == "programs" else 5)
    if name == "programs":
        assert len({'"""' in s for s in solutions.values()}) == 2


@pytest.mark.parametrize("name", FAMILIES)
def test_prompts_and_solutions_are_short(name):
    for i in range(300):
        item = TASKS[name].generate("train", i)
        assert len(item.prompt) < 500
        assert len(item.solution) < 700
        assert item.prompt.endswith("\n")
        assert item.solution == item.solution.rstrip()


def test_an_unknown_family_or_stream_is_named_with_the_nearest_one():
    with pytest.raises(RippleError, match="words"):
        get_task("word")
    with pytest.raises(RippleError, match="train"):
        TASKS["words"].generate("trian", 0)
    with pytest.raises(RippleError, match="0 or more"):
        TASKS["words"].generate("train", -1)
    with pytest.raises(RippleError, match="The number of items must be 0 or more, not -1"):
        TASKS["words"].test_items(-1)
