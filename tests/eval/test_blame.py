"""`ripple bench blame`: commits read from traces, and the guilty one found by replaying them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ripple
from ripple.errors import RippleError
from ripple.eval.blame import Blame, Commit, Resumed, bisect, commits_of, finish, resume
from ripple.eval.lines import read_results
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
    history = commits_of(result.trace or [])
    assert sorted(pos for commit in history for pos in commit.pos) == [
        result.prompt_tokens + i for i in range(LENGTH)
    ]
    searches = [event.data for event in result.trace or [] if event.kind == "search"]
    ranks = [facts["chosen"] + 1 for facts in searches if facts["chosen"] is not None]
    assert [commit.rank for commit in history if commit.cause == "pivot"] == ranks
    assert all(commit.rank == 1 for commit in history if commit.cause != "pivot")


def test_resuming_from_nothing_is_one_token_per_step(engine: ripple.Engine, item: Item) -> None:
    how = {"length": LENGTH, "block": 32}
    plain, resumed = (engine.generate(item.prompt, decoder=d, **how) for d in (ripple.Default(), Resumed()))
    assert resumed.token_ids == plain.token_ids and resumed.nfe == plain.nfe == LENGTH


def test_the_commit_that_spoils_an_answer_is_found(engine: ripple.Engine, item: Item) -> None:
    task = TASKS["functions"]
    [right] = engine.generate([item.prompt], decoder="rps", length=LENGTH, trace=True)
    history = commits_of(right.trace or [])
    assert finish(engine, task, [item], [resume(history[:1])], LENGTH) == [True]
    spoilt = history[1]._replace(token=(right.token_ids[-1],) * len(history[1].token))  # an end token inside
    assert bisect(engine, task, [item], [[history[0], spoilt, *history[2:]]], LENGTH) == [1]


def test_glide_is_blamed_too_and_its_end_fill_counts_as_certain(engine: ripple.Engine, item: Item) -> None:
    [result] = engine.generate([item.prompt], decoder="glide", length=64, trace=True)
    history = commits_of(result.trace or [])
    assert sum(len(commit.pos) for commit in history) == 64
    filled = [commit for commit in history if commit.cause == "end"]
    assert len(filled) == 1 and filled[0].rank == 1


def test_a_pivot_is_grouped_by_rank() -> None:
    ranks = [Commit((1,), (2,), 0.5, "pivot", 1.0, rank).group for rank in (1, 2, 3, 9)]
    assert ranks == ["pivot, rank 1", "pivot, rank 2", "pivot, rank 3+", "pivot, rank 3+"]


def test_each_model_and_family_gets_one_line_table_and_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "blame.jsonl"
    run = Blame(out=out, models="tiny-llada", tasks="functions", decoders="rps,glide", items=2, length=LENGTH)
    for _ in range(2):  # the second time there is nothing left to do
        told = run.run()
        lines = read_results(out)
    assert told["lines"] == {
        f"tiny-llada functions {line['setting']}": {"n": 2, "solved": line["solved"], "lost": line["lost"]}
        for line in lines
    }
    assert [line["setting"] for line in lines] == ["rps", "glide"]
    assert told["files"] == f"{out}, {out.with_suffix('.md')}, {out.with_suffix('.svg')}"
    for line in lines:
        assert line["lost"] == len(line["cases"]) == sum(line["guilty"].values())
        assert line["lost"] <= line["n"] - line["solved"]
    table = out.with_suffix(".md").read_text()
    assert "## RPS, canvas 32" in table and "## glide, canvas 32" in table
    assert "| tiny-llada | functions | 2 |" in table
    assert "<svg" in out.with_suffix(".svg").read_text()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"tasks": "wrods"}, "Did you mean 'words'"),
        ({"tasks": " , "}, "Name at least one task"),
        ({"items": 0}, "items must be a whole number of at least 1, got 0"),
        ({"models": "GSAI-ML/LLaDA-1.5"}, "functions is scored by running code"),
        ({"models": "tiny-lada"}, "Did you mean 'tiny-llada'"),
    ],
)
def test_bad_input_is_refused_before_work(tmp_path: Path, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RippleError, match=sentence):
        Blame(**({"out": tmp_path / "blame.jsonl"} | given)).run()
    assert not list(tmp_path.iterdir())
