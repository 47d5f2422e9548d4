"""The runner in this process: lines, counts, resuming, keeping runs apart."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import ripple
from ripple.analysis.lines import read_lines
from ripple.analysis.statistics import wilson
from ripple.errors import RippleError
from ripple.eval import find_task
from ripple.eval.results import read_results, read_run
from ripple.eval.run import GROUP, locked
from tests.eval.conftest import Coded, Parity, go, rows


def test_every_item_has_one_line_and_counts_add_up(engine: ripple.Engine, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "results.jsonl"
    found = go(engine, out, decoder=ripple.RPS())
    mine = rows(out)
    assert sorted(row["item"] for row in mine) == sorted(item.id for item in Parity().test_items(12))
    for row in mine:
        assert row["nfe"] == row["nfe_normal"] + row["nfe_lookahead"] <= row["rows"]
        assert 0 < row["new_tokens"] <= row["length"] == 16 and row["finish"] == "length"
        assert row["fields"] == ripple.RPS().settings() and row["run"] == found.run
    assert sum(row["nfe_lookahead"] for row in mine) > 0
    n_right = sum(row["right"] for row in mine)
    assert (found.n, found.n_right, found.interval) == (12, n_right, wilson(n_right, 12))
    assert found.nfe == pytest.approx(found.nfe_normal + found.nfe_lookahead)
    assert found.nfe == sum(row["nfe"] for row in mine) / 12
    walls = [line["wall_seconds"] for line in read_lines(out) if line["kind"] == "item"]
    assert found.tokens_per_second == pytest.approx(sum(r["new_tokens"] for r in mine) / sum(walls))


def test_lines_are_what_generate_gives(engine: ripple.Engine, tmp_path: Path) -> None:
    go(engine, tmp_path / "r.jsonl", limit=5, decoder=ripple.RPS(), cache=ripple.DualCache())
    of = {row["item"]: row for row in rows(tmp_path / "r.jsonl")}
    for item in Parity().test_items(5):
        alone = engine.generate(item.prompt, decoder="rps", length=16, block=8, cache="dual")
        row = of[item.id]
        assert (row["text"], row["nfe"], row["rows"]) == (alone.text, alone.nfe, alone.rows)
        assert row["new_tokens"] == len(alone.new_tokens) and row["right"] == Parity().score(item, alone.text)


def test_batch_and_single_give_the_same_rows(engine: ripple.Engine, tmp_path: Path) -> None:
    many, one = tmp_path / "many.jsonl", tmp_path / "one.jsonl"
    go(engine, many, decoder=ripple.RPS())
    engine.max_batch = 1
    go(engine, one, decoder=ripple.RPS())
    assert rows(many, "environment") == rows(one, "environment")
    assert [line["batch"] for path in (many, one) for line in read_lines(path)[:1]] == [4, 1]


@pytest.mark.parametrize("seed", range(6))
def test_a_file_cut_anywhere_is_completed(engine: ripple.Engine, tmp_path: Path, seed: int) -> None:
    out = tmp_path / "r.jsonl"
    whole = go(engine, out)
    data, lines = out.read_bytes(), rows(out)
    out.write_bytes(data[: random.Random(seed).randrange(len(data))])
    kept = rows(out)
    again = go(engine, out)
    assert rows(out) == lines and len(kept) < len(lines)
    assert [line["kind"] for line in read_lines(out)].count("environment") == 1
    assert (again.accuracy, again.nfe, again.run) == (whole.accuracy, whole.nfe, whole.run)


def test_nothing_is_decoded_twice(engine: ripple.Engine, tmp_path: Path) -> None:
    out, task, heard = tmp_path / "r.jsonl", Parity(), []
    go(engine, out, limit=4, task=task)
    found = go(engine, out, limit=9, task=task, progress=lambda done, n, line: heard.append((done, n)))
    assert sum(task.groups) == 9 and found.n == 9
    assert heard == [(done, 9) for done in range(4, 10)]
    before = out.read_bytes()
    assert go(engine, out, limit=3, task=task).n == 3  # sums up the first three and decodes nothing
    assert out.read_bytes() == before and sum(task.groups) == 9


def test_other_settings_are_another_run_in_the_same_file(engine: ripple.Engine, tmp_path: Path) -> None:
    out, alone = tmp_path / "r.jsonl", tmp_path / "alone.jsonl"
    changes = [{}, {"decoder": ripple.Confidence(tau=0.5)}, {"cache": ripple.PrefixCache()}, {"seed": 1}]
    found = [go(engine, out, limit=3, **change) for change in changes]
    assert len({summary.run for summary in found}) == 4
    assert len(rows(out)) == 12
    go(engine, alone, limit=3, **changes[1])
    assert read_run(f"{out}#{found[1].run}") != [] and rows(alone) == [
        row for row in rows(out) if row["run"] == found[1].run
    ]
    with pytest.raises(RippleError, match="holds 4 runs; name one as"):
        read_run(str(out))
    with pytest.raises(RippleError, match="holds no items of run zzz"):
        read_run(f"{out}#zzz")


def test_other_weights_are_another_run(engine: ripple.Engine, tmp_path: Path) -> None:
    first = go(engine, tmp_path / "r.jsonl", limit=1)
    engine.model.weights.head[0] += 1
    assert go(engine, tmp_path / "r.jsonl", limit=1).run != first.run


def test_chat_and_the_tasks_own_facts_are_other_runs(engine: ripple.Engine, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    plain, shots = go(engine, out, limit=2), go(engine, out, limit=2, task_facts={"shots": 3})
    chat = go(engine, out, limit=2, chat=True)
    assert len({plain.run, shots.run, chat.run}) == 3
    of = {summary.run: read_run(f"{out}#{summary.run}") for summary in (plain, shots, chat)}
    assert [row["shots"] for row in of[shots.run]] == [3, 3]
    assert of[chat.run][0]["prompt_tokens"] > of[plain.run][0]["prompt_tokens"]


def test_code_is_scored_in_small_groups_and_text_at_once(engine: ripple.Engine, tmp_path: Path) -> None:
    code, text = Coded(), Parity()
    go(engine, tmp_path / "code.jsonl", limit=2 * GROUP + 3, task=code)
    go(engine, tmp_path / "text.jsonl", task=text)
    # A group closes in the tick that fills it, which may bring as many items as there are in a batch.
    assert sum(code.groups) == 2 * GROUP + 3 and max(code.groups) < GROUP + engine.max_batch
    assert len(code.groups) <= 3 + 1 and max(text.groups) <= engine.max_batch


def test_two_runs_on_one_file_are_refused(engine: ripple.Engine, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    with locked(out), pytest.raises(RippleError, match=r"Another run is writing .*; wait for its end"):
        go(engine, out)
    assert go(engine, out, limit=1).n == 1  # and the lock is gone


@pytest.mark.parametrize(
    "content, sentence",
    [
        ("a note without an end", "its last line is not a result line"),
        ("oops\n{}\n", "line 1: not a result line"),
        ('{"bench": "decoders"}\n', "entry 1 is neither an item nor an environment"),
        ("[1, 2]\n", "entry 1 is neither"),
        ('{"kind": "item", "run": "a"}\n', "entry 1 has no proper 'environment'"),
        ('{"kind": "environment"}\n', "entry 1 has no 'run'"),
        ("\udcff\n", "it is not text"),
    ],
)
def test_a_malformed_file_is_refused_and_left_alone(
    engine: ripple.Engine, tmp_path: Path, content: str, sentence: str
) -> None:
    out = tmp_path / "r.jsonl"
    data = content.encode(errors="surrogateescape")
    out.write_bytes(data)
    with pytest.raises(RippleError, match=sentence) as refused:
        go(engine, out)
    assert out.read_bytes() == data and "\n" not in str(refused.value)


def test_doubled_lines_and_changed_items_are_refused(engine: ripple.Engine, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    go(engine, out, limit=1)
    whole = out.read_text()
    out.write_text(whole + whole.splitlines()[-1] + "\n")
    with pytest.raises(RippleError, match=r"item parity/test/\d+ of run \w+ is there twice"):
        read_results(out)
    out.write_text(whole.replace('"digest": "', '"digest": "x'))
    with pytest.raises(RippleError, match="another version of item parity/test/"):
        go(engine, out, limit=1)


def test_bad_input_is_one_sentence(engine: ripple.Engine, tmp_path: Path) -> None:
    with pytest.raises(RippleError, match="limit must be at least 1"):
        go(engine, tmp_path / "r.jsonl", limit=0)
    with pytest.raises(RippleError, match="Cannot write the results"):
        go(engine, tmp_path)
    with pytest.raises(RippleError, match=r"Item parity/test/\d+: Prompt of \d+ tokens and"):
        go(engine, tmp_path / "r.jsonl", length=1020)
    with pytest.raises(RippleError, match="Did you mean 'words'"):
        find_task("wrods")


def test_an_error_leaves_the_engine_usable(engine: ripple.Engine, tmp_path: Path) -> None:
    def stop(done: int, n: int, line: object) -> None:
        if done == 2:
            raise KeyboardInterrupt

    out = tmp_path / "r.jsonl"
    with pytest.raises(KeyboardInterrupt):
        go(engine, out, progress=stop)
    assert len(rows(out)) == 2
    assert go(engine, out).n == 12 and len(rows(out)) == 12
