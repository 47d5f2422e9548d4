"""`ripple bench blame`: commits read from traces, and the guilty one found by replaying them."""

from __future__ import annotations

from pathlib import Path

import pytest

import ripple
from ripple.analysis.lines import read_lines
from ripple.bench.blame import Commit, Resumed, bisect, commits, finish, measure, resume
from ripple.errors import RippleError
from ripple.tasks import TASKS, Item

LENGTH = 32


@pytest.fixture(scope="module")
def engine() -> ripple.Engine:
    return ripple.load("tiny-llada", device="cpu")


@pytest.fixture(scope="module")
def item() -> Item:
    return TASKS["functions"].test_items(3)[2]  # solved on so short a canvas


def test_commits_carry_cause_rank_and_entropy_and_fill_the_canvas(engine: ripple.Engine, item: Item) -> None:
    [result] = engine.generate([item.prompt], decoder="rps", length=LENGTH, trace=True)
    found = commits(result.trace or [])
    assert sorted(pos for commit in found for pos in commit.pos) == [
        result.prompt_tokens + i for i in range(LENGTH)
    ]
    searches = [event.data for event in result.trace or [] if event.kind == "search"]
    ranks = [facts["chosen"] + 1 for facts in searches if facts["chosen"] is not None]
    assert [commit.rank for commit in found if commit.cause == "pivot"] == ranks
    assert all(commit.rank == 1 for commit in found if commit.cause != "pivot")


def test_resuming_from_nothing_is_one_token_per_step(engine: ripple.Engine, item: Item) -> None:
    how = {"length": LENGTH, "block": 32}
    plain, resumed = (engine.generate(item.prompt, decoder=d, **how) for d in (ripple.Default(), Resumed()))
    assert resumed.token_ids == plain.token_ids and resumed.nfe == plain.nfe == LENGTH


def test_the_commit_that_spoils_an_answer_is_found(engine: ripple.Engine, item: Item) -> None:
    task = TASKS["functions"]
    [right] = engine.generate([item.prompt], decoder="rps", length=LENGTH, trace=True)
    history = commits(right.trace or [])
    assert finish(engine, task, [item], [resume(history[:1])], LENGTH) == [True]
    spoilt = history[1]._replace(token=(right.token_ids[-1],) * len(history[1].token))  # an end token inside
    assert bisect(engine, task, [item], [[history[0], spoilt, *history[2:]]], LENGTH) == [1]


def test_a_pivot_is_grouped_by_rank() -> None:
    ranks = [Commit((1,), (2,), 0.5, "pivot", 1.0, rank).group for rank in (1, 2, 3, 9)]
    assert ranks == ["pivot, rank 1", "pivot, rank 2", "pivot, rank 3+", "pivot, rank 3+"]


def test_each_model_and_family_gets_one_line_table_and_figure(tmp_path: Path) -> None:
    out = tmp_path / "blame.jsonl"
    how = {"models": "tiny-llada", "families": "functions", "items": 2, "length": LENGTH}
    for _ in range(2):  # the second time there is nothing left to do
        measure(out, **how)
        [line] = read_lines(out)
    assert line["lost"] == len(line["cases"]) == sum(line["guilty"].values()) <= line["n"] - line["solved"]
    table = out.with_suffix(".md").read_text()
    assert "## Canvas 32" in table and "| tiny-llada | functions | 2 |" in table
    assert "<svg" in out.with_suffix(".svg").read_text()
    with pytest.raises(RippleError, match="words"):
        measure(out, families="wrods")
