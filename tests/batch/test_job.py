"""Every row exactly once, in the order of the input, whatever happens on the way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

import ripple
from ripple.engine.work import Work
from ripple.errors import RippleError
from ripple.pool.decode import NumberedPrompt, RowOutcome, decode
from tests.batch.conftest import HOW, Run, lines, prompts


def test_results_are_those_of_the_engine_in_the_order_of_the_input(job: Run, engine: ripple.Engine) -> None:
    rows = prompts(8)
    rows[2]["options"] = {"decoder": "default", "length": 24}  # ends last
    tally = job(rows)
    alone = [engine.generate(row["prompt"], ripple.Options.of(HOW | row.get("options", {}))) for row in rows]
    assert (tally.rows, tally.errors) == (8, 0)
    assert lines(tally.results) == [
        {"id": row["id"], "text": one.text, "finish": one.finish, "prompt_tokens": one.prompt_tokens,
         "new_tokens": len(one.new_tokens), "nfe": one.nfe, "canvases": one.canvases, "error": None}
        for row, one in zip(rows, alone, strict=True)
    ]  # fmt: skip
    assert sorted(path.name for path in tally.results.parent.iterdir()) == ["job.json", "results.jsonl"]


def test_a_bad_row_is_a_row_with_an_error(job: Run) -> None:
    rows = prompts(7)
    del rows[0]["prompt"]
    rows[1]["prompt"] = ""
    rows[2]["prompt"] = "much too long " * 500
    rows[3]["options"] = {"decoder": "no_such"}
    rows[4]["prompt"] = [1, "two"]
    rows[5]["prompt"] = "half a \ud800 character"
    tally = job(rows)
    assert (tally.rows, tally.errors) == (7, 6)
    *bad, good = lines(tally.results)
    assert (
        good["error"] is None and good["text"] and [line["id"] for line in bad] == [f"r{i}" for i in range(6)]
    )
    assert all(line["text"] is None and line["nfe"] is None and line["error"].endswith(".") for line in bad)
    assert "1024 positions" in bad[2]["error"] and "no_such" in bad[3]["error"]


def stopping(engine: ripple.Engine, after: int) -> Any:
    def some(these: Iterable[NumberedPrompt]) -> Iterator[tuple[int, RowOutcome]]:
        yield from itertools.islice(decode(engine, these), after)
        raise RuntimeError("the power is gone")

    return some


def test_a_job_that_stops_is_resumed_to_the_same_bytes(job: Run, engine: ripple.Engine) -> None:
    rows = prompts(9)
    calm = job(rows, out="calm")
    for after in (0, 1, 4):
        with pytest.raises(RuntimeError):
            job(rows, stopping(engine, after))
    seen = []

    def watched(these: Iterable[NumberedPrompt]) -> Iterator[tuple[int, RowOutcome]]:
        for number, outcome in decode(engine, these):
            seen.append(number)
            yield number, outcome

    tally = job(rows, watched)
    assert len(seen) == 4  # the five that were finished are not decoded again
    for name in ("results.jsonl", "job.json"):
        assert (tally.results.parent / name).read_bytes() == (calm.results.parent / name).read_bytes()


def no_decoding(these: Iterable[NumberedPrompt]) -> Iterator[tuple[int, RowOutcome]]:
    raise AssertionError("a finished job decodes")


def test_a_job_that_is_done_decodes_nothing(job: Run, tmp_path: Path) -> None:
    first = job(prompts(3))
    before = first.results.stat().st_mtime_ns
    (tmp_path / "out" / "unfinished.jsonl").write_text("left by a kill\n")
    assert job(prompts(3), no_decoding) == first and first.results.stat().st_mtime_ns == before
    assert not (tmp_path / "out" / "unfinished.jsonl").exists()


@pytest.mark.parametrize("is_done", [True, False])
def test_another_job_is_refused(job: Run, engine: ripple.Engine, is_done: bool) -> None:
    if is_done:
        job(prompts(3))
    else:
        with pytest.raises(RuntimeError):
            job(prompts(3), stopping(engine, 1))
    for rows, how, name in (
        (prompts(4), {}, "input"), (prompts(3), {"table": {"length": 8}}, "length"),
        (prompts(3), {"chat": True}, "chat"), (prompts(3), {"table": {"decoder": "rps"}}, "decoder"),
    ):  # fmt: skip
        with pytest.raises(RippleError, match=f"holds another job: its {name} was .*, now it is"):
            job(rows, **how)


def test_a_checkpoint_that_is_not_ours_is_left_alone(job: Run, tmp_path: Path) -> None:
    path = tmp_path / "out" / "unfinished.jsonl"
    path.parent.mkdir()
    for text in ("something\n", '{"id": "r1"}\n', '{"input": 1}\n{"input": 2}\n'):
        path.write_text(text)
        with pytest.raises(RippleError, match="not a line of an unfinished job"):
            job(prompts(2))
        assert path.read_text() == text


def test_parquet_holds_what_json_lines_hold(job: Run) -> None:
    rows = [{"id": i, "prompt": row["prompt"]} for i, row in enumerate(prompts(5))]
    rows[3]["prompt"] = ""
    text, table = job(rows), job(rows, out="table", format="parquet")
    assert pyarrow.parquet.read_table(table.results).to_pylist() == lines(text.results)


# -- failures ----------------------------------------------------------------------------------------------


def failing(engine: ripple.Engine, monkeypatch: pytest.MonkeyPatch, fails: Callable[[Work], bool]) -> None:
    """Have the forwards of some requests fail."""
    run = engine.runner.run

    def outcomes(work: Sequence[Work]) -> list[Any]:
        bad = [fails(one) for one in work]
        good = iter(
            run([one for one, is_bad in zip(work, bad, strict=True) if not is_bad]) if not all(bad) else []
        )
        return [RuntimeError("out of memory") if is_bad else next(good) for is_bad in bad]

    monkeypatch.setattr(engine.runner, "run", outcomes)


def test_a_fault_of_the_company_costs_no_row(
    job: Run, engine: ripple.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = job(prompts(6), out="calm")
    forwards = itertools.count()
    failing(engine, monkeypatch, lambda one: 4 <= next(forwards) < 7)
    tally = job(prompts(6))
    assert next(forwards) > 7
    assert tally.errors == 0 and tally.results.read_bytes() == calm.results.read_bytes()


def test_a_row_that_fails_twice_has_an_error_without_the_requests_number(
    job: Run, engine: ripple.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = prompts(4)
    rows[1]["options"] = {"temperature": 0.5}
    failing(engine, monkeypatch, lambda one: one.temperature > 0)
    tally = job(rows)
    assert tally.errors == 1
    assert lines(tally.results)[1]["error"] == (
        "Decoder 'confidence', forward 1: the forward failed: RuntimeError: out of memory."
    )


def test_a_device_that_is_gone_is_no_rows_fault(
    job: Run, engine: ripple.Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    forwards = itertools.count()
    with monkeypatch.context() as broken:
        failing(engine, broken, lambda one: next(forwards) > 20)
        with pytest.raises(RippleError, match=r"Nothing can be decoded any more: .*out of memory"):
            job(prompts(30))
    kept = lines(tmp_path / "out" / "unfinished.jsonl")[1:]
    assert 0 < len(kept) < 30 and not any(line["error"] for line in kept)
    assert job(prompts(30)).errors == 0


def test_a_decoder_that_cannot_even_start_ends_its_row_alone(
    job: Run, engine: ripple.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ripple.RPS, "fitted", lambda self, setup: 1 / 0)
    rows = prompts(3)
    rows[0]["options"] = {"decoder": "rps"}
    assert [line["error"] for line in lines(job(rows).results)] == [
        "ZeroDivisionError: division by zero",
        None,
        None,
    ]
