"""The runner in this process: lines, counts, resuming, keeping runs apart, what fails."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import ripple
from ripple.analysis.statistics import wilson
from ripple.canvas import Canvas
from ripple.decoders.base import Conversation
from ripple.errors import RippleError
from ripple.eval.results import read_run
from ripple.eval.runner import GROUP, Evaluation, Scorer
from ripple.eval.summary import packed
from ripple.files import append_line, locked, read_lines
from ripple.models.random_checkpoint import write_random_checkpoint
from ripple.tasks import Item, find_task
from tests.eval.conftest import Coded, Parity, go, rows


def test_every_item_has_one_line_and_counts_add_up(engine: ripple.Engine, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "results.jsonl"
    summary = go(engine, out, decoder="rps")
    mine = rows(out)
    assert sorted(row["item"] for row in mine) == sorted(item.id for item in Parity().test_items(12))
    for row in mine:
        assert row["nfe"] == row["nfe_normal"] + row["nfe_lookahead"] <= row["canvases"]
        assert 0 < row["new_tokens"] <= 16 and row["finish"] in ("end", "length")
        assert row["run"] == summary.run
    assert sum(row["nfe_lookahead"] for row in mine) > 0
    n_right = sum(row["right"] for row in mine)
    assert (summary.n, summary.n_right, summary.interval) == (12, n_right, wilson(n_right, 12))
    assert summary.nfe == pytest.approx(summary.nfe_normal + summary.nfe_lookahead)
    assert summary.nfe == sum(row["nfe"] for row in mine) / 12
    seconds = sum(line["engine_seconds"] for line in read_lines(out) if line["kind"] == "item")
    assert summary.tps == pytest.approx(sum(row["new_tokens"] for row in mine) / seconds)
    [run] = [line for line in read_lines(out) if line["kind"] == "run"]
    assert run["fields"] == ripple.RPS().settings() and (run["length"], run["block"]) == (16, 8)
    assert (run["model"], run["model_family"], run["device"]) == ("small", "llada", "cpu")


def test_lines_are_what_generate_gives(engine: ripple.Engine, tmp_path: Path) -> None:
    go(engine, tmp_path / "r.jsonl", limit=5, decoder="rps", cache="dual")
    of = {row["item"]: row for row in rows(tmp_path / "r.jsonl")}
    for item in Parity().test_items(5):
        alone = engine.generate(item.prompt, decoder="rps", length=16, block=8, cache="dual")
        row = of[item.id]
        assert (row["text"], row["nfe"], row["canvases"]) == (alone.text, alone.nfe, alone.canvases)
        assert row["new_tokens"] == len(alone.new_tokens)
        assert row["right"] == Parity().score(item, alone.text)


def test_batch_and_single_give_the_same_rows(engine: ripple.Engine, tmp_path: Path) -> None:
    many, one = tmp_path / "many.jsonl", tmp_path / "one.jsonl"
    go(engine, many, decoder="rps")
    engine.max_batch = 1
    go(engine, one, decoder="rps")
    assert rows(many, "environment") == rows(one, "environment")
    assert [line["batch"] for path in (many, one) for line in read_lines(path)[1:2]] == [4, 1]


def test_packed_a_run_says_the_same(engine: ripple.Engine, tmp_path: Path) -> None:
    summary = go(engine, tmp_path / "r.jsonl", limit=6, task=Coded(), decoder="rps")
    run = Evaluation(
        engine, Coded(), ripple.Options("rps", length=16, block=8, seed=0), "small"
    )  # fmt: skip
    items = Coded().test_items(6)
    measured = {row["item"]: row for row in run.measured(items, Scorer(run.task), at_once=True)}
    line = packed(run, [measured[item.id] for item in items])
    assert line["run"] == summary.run
    for name in ("n", "accuracy", "nfe", "canvases", "new_tokens", "tokens_fast_dllm"):
        assert line[name] == getattr(summary, name)
    of = {row["item"]: row for row in rows(tmp_path / "r.jsonl")}
    assert line["nfe_items"] == [of[item.id]["nfe"] for item in items]
    bits = f"{int(line['right'], 16):06b}"
    assert [bit == "1" for bit in bits] == [of[item.id]["right"] for item in items]
    assert len(line["source_lines"]) == 6
    append_line(tmp_path / "packed.jsonl", line)
    with pytest.raises(RippleError, match="holds no items; the runs that it holds are packed"):
        read_run(str(tmp_path / "packed.jsonl"))


@pytest.mark.parametrize("seed", range(6))
def test_a_file_cut_anywhere_is_completed(engine: ripple.Engine, tmp_path: Path, seed: int) -> None:
    out = tmp_path / "r.jsonl"
    whole = go(engine, out, limit=6)
    data, lines = out.read_bytes(), rows(out)
    out.write_bytes(data[: random.Random(seed).randrange(len(data) - 1)])
    kept = rows(out)
    again = go(engine, out, limit=6)
    assert rows(out) == lines and len(kept) < len(lines)
    kinds = [line["kind"] for line in read_lines(out)]
    assert kinds.count("environment") == kinds.count("run") == 1
    assert (again.accuracy, again.nfe, again.run) == (whole.accuracy, whole.nfe, whole.run)


def test_a_line_that_only_lacks_its_newline_is_kept_and_not_run_again(
    engine: ripple.Engine, tmp_path: Path
) -> None:
    out, task = tmp_path / "r.jsonl", Parity()
    go(engine, out, limit=3, task=task)
    whole = out.read_bytes()
    out.write_bytes(whole[:-1])
    assert go(engine, out, limit=3, task=task).n == 3
    assert out.read_bytes() == whole and sum(task.groups) == 3


def test_nothing_is_decoded_twice(engine: ripple.Engine, tmp_path: Path) -> None:
    out, task = tmp_path / "r.jsonl", Parity()
    go(engine, out, limit=4, task=task)
    assert go(engine, out, limit=9, task=task).n == 9 == sum(task.groups)
    before = out.read_bytes()
    assert go(engine, out, limit=3, task=task).n == 3  # sums up the first three and decodes nothing
    assert out.read_bytes() == before and sum(task.groups) == 9


def test_the_same_response_is_judged_once() -> None:
    task = Parity()
    items, scorer = task.test_items(2), Scorer(task)
    first = scorer.judge([items[0], items[0], items[1]], ["a", "a", "a"])
    assert scorer.judge([items[1], items[0]], ["a", "b"])[0] == first[2] and first[0] == first[1]
    assert task.groups == [2, 1]


def test_other_settings_are_another_run_in_the_same_file(engine: ripple.Engine, tmp_path: Path) -> None:
    out, alone = tmp_path / "r.jsonl", tmp_path / "alone.jsonl"
    changes = [{}, {"decoder": "confidence:tau=0.5"}, {"cache": "prefix"}, {"seed": 1}]
    summaries = [go(engine, out, limit=3, **change) for change in changes]
    assert len({summary.run for summary in summaries}) == 4
    assert len(rows(out)) == 12
    go(engine, alone, limit=3, **changes[1])
    assert len(read_run(f"{out}#{summaries[1].run}").items) == 3
    assert rows(alone) == [row for row in rows(out) if row["run"] == summaries[1].run]
    with pytest.raises(RippleError, match="holds 4 runs; name one as"):
        read_run(str(out))
    with pytest.raises(RippleError, match="holds no items of run zzz"):
        read_run(f"{out}#zzz")


def test_other_weights_chat_and_facts_of_the_task_are_other_runs(
    engine: ripple.Engine, checkpoint: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r.jsonl"
    plain, shots = go(engine, out, limit=2), go(engine, out, limit=2, task=Parity(shots=3))
    chat = go(engine, out, limit=2, chat=True)
    folder = write_random_checkpoint(
        tmp_path / "llada", seed=1, vocab_size=328, d_model=32, n_heads=2, d_ff=32
    )
    other = go(ripple.load(folder, device="cpu", dtype="float32"), out, limit=2)
    assert len({plain.run, shots.run, chat.run, other.run}) == 4
    of = {summary.run: read_run(f"{out}#{summary.run}") for summary in (plain, shots, chat, other)}
    assert of[shots.run].facts["task_facts"] == {"shots": 3} and of[chat.run].facts["chat"]
    assert of[chat.run].items[0]["prompt_tokens"] > of[plain.run].items[0]["prompt_tokens"]
    assert of[plain.run].facts["weights"] != of[other.run].facts["weights"]


def test_code_is_scored_in_small_groups_and_text_at_once(engine: ripple.Engine, tmp_path: Path) -> None:
    code, text = Coded(), Parity()
    go(engine, tmp_path / "code.jsonl", limit=2 * GROUP + 3, task=code)
    go(engine, tmp_path / "text.jsonl", task=text)
    assert sum(code.groups) == 2 * GROUP + 3 and max(code.groups) == GROUP and len(code.groups) == 3
    assert set(text.groups) == {1}


@dataclass(frozen=True)
class Fussy(ripple.Decoder):
    """Fails on some canvases after two forwards."""

    name = "fussy"
    paper = "a test"

    def decode(self, canvas: Canvas) -> Conversation:
        conversation = ripple.Default(k=4).decode(canvas)
        answer = None
        for n in range(3):
            ask = next(conversation) if answer is None else conversation.send(answer)
            if n == 2 and canvas.ids[0] % 3 == 0:
                raise ValueError("not this one")
            answer = yield ask
        while True:
            try:
                answer = yield conversation.send(answer)
            except StopIteration:
                return


def test_a_request_that_fails_is_named_and_costs_no_other(engine: ripple.Engine, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    items = Parity().test_items(12)
    assert engine.tokenizer is not None
    bad = [item.id for item in items if engine.tokenizer.encode(item.prompt)[0] % 3 == 0]
    assert 1 < len(bad) < 12
    with pytest.raises(RippleError, match=r"Item (\S+): .*not this one.*more failed too") as refused:
        go(engine, out, decoder=Fussy())
    assert str(refused.value).split()[1].rstrip(":") in bad and "\n" not in str(refused.value)
    assert {row["item"] for row in rows(out)} == {item.id for item in items} - set(bad)


@dataclass(frozen=True)
class Slow(ripple.Decoder):
    """Takes its time on the host after every forward."""

    name = "slow"
    paper = "a test"

    def decode(self, canvas: Canvas) -> Conversation:
        conversation = ripple.Default(k=4).decode(canvas)
        ask = next(conversation)
        with contextlib.suppress(StopIteration):
            while True:
                answer = yield ask
                time.sleep(0.01)
                ask = conversation.send(answer)


def test_the_engines_seconds_add_up_and_hold_the_decoders_own_time(
    engine: ripple.Engine, tmp_path: Path
) -> None:
    start = time.perf_counter()
    summary = go(engine, tmp_path / "r.jsonl", limit=4, decoder=Slow())
    wall = time.perf_counter() - start
    assert 0.01 * 4 * summary.nfe <= summary.seconds <= wall


def test_nothing_is_left_behind_when_nothing_was_decoded(engine: ripple.Engine, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    with pytest.raises(RippleError, match=r"Item parity/test/\d+: Prompt of \d+ tokens and"):
        go(engine, out, length=1020)
    assert not out.exists()


def test_changed_items_are_refused(engine: ripple.Engine, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    go(engine, out, limit=1)
    out.write_text(out.read_text().replace('"digest": "', '"digest": "x'))
    with pytest.raises(RippleError, match="another version of item parity/test/"):
        go(engine, out, limit=1)


def test_two_runs_on_one_file_are_refused(engine: ripple.Engine, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    with locked(out), pytest.raises(RippleError, match=r"Another run is writing .*; wait for its end"):
        go(engine, out)
    assert go(engine, out, limit=1).n == 1  # and the lock is gone


def test_bad_input_is_one_sentence(engine: ripple.Engine, tmp_path: Path) -> None:
    with pytest.raises(RippleError, match="limit must be at least 1"):
        go(engine, tmp_path / "r.jsonl", limit=0)
    with pytest.raises(RippleError, match="Cannot write the results"):
        go(engine, tmp_path)
    with pytest.raises(RippleError, match="Did you mean 'words'"):
        find_task("wrods")


def test_an_interrupt_leaves_the_engine_usable(
    engine: ripple.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, whole = tmp_path / "r.jsonl", Evaluation._scored

    def interrupted(self: Evaluation, group: list[tuple[Item, object]], scorer: Scorer) -> Iterator[object]:
        if out.exists() and len(rows(out)) == 2:
            raise KeyboardInterrupt
        return whole(self, group, scorer)  # type: ignore[arg-type]

    monkeypatch.setattr(Evaluation, "_scored", interrupted)
    with pytest.raises(KeyboardInterrupt):
        go(engine, out)
    assert len(rows(out)) == 2
    monkeypatch.undo()
    assert go(engine, out).n == 12 and len(rows(out)) == 12
