"""Published benchmarks through the runner, on rows of our own in the publishers' formats."""

from __future__ import annotations

import json
from pathlib import Path

import huggingface_hub.constants
import pytest

import ripple
from ripple.cli import main
from ripple.eval.results import read_run, summarize
from ripple.files import read_lines
from ripple.tasks import BENCHMARKS, TASKS, cut, find_task
from tests.eval.conftest import go

ROWS = [
    {
        "question": f"Ann has {i} pens and buys {i + 2}. How many?",
        "answer": f"{i} + {i + 2} = {2 * i + 2}\n#### {2 * i + 2}",
    }
    for i in range(1, 9)
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "gsm8k"
    folder.mkdir(parents=True)
    for name, rows in (("test.jsonl", ROWS[:3]), ("train.jsonl", ROWS[3:])):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "data"


def test_every_name_is_found_and_others_name_the_nearest(data: Path) -> None:
    assert set(TASKS).isdisjoint(BENCHMARKS)
    assert find_task("words") is TASKS["words"]
    assert len(find_task("gsm8k", data, shots=1).test_items()) == 3
    for name, options, sentence in (
        ("wordz", {}, "Did you mean 'words'"),
        ("words", {"data": data}, "takes neither data nor shots"),
        ("gsm8k", {"data": data / "nowhere"}, "nowhere"),
    ):
        with pytest.raises(ripple.RippleError, match=sentence):
            find_task(name, **options)  # type: ignore[arg-type]


def test_without_files_and_network_a_benchmark_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", "/nowhere")
    with pytest.raises(ripple.RippleError) as refused:
        find_task("gsm8k")
    assert str(refused.value).startswith("openai/gsm8k is not in the local hub cache and cannot be fetched")
    assert str(refused.value).endswith("say with --data where gsm8k's files are.")


def test_a_benchmark_is_evaluated_with_its_checksums_in_the_runs_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    how = ["--length", "16", "--block", "16", "--decoder", "confidence", "--out", str(out), "--json"]
    assert main(["eval", "--task", "gsm8k", "--data", str(data), "--shots", "1", *how]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["n"] == 3 and "sha256" in captured.err
    [run] = [line for line in read_lines(out) if line["kind"] == "run"]
    assert run["task_facts"]["shots"] == 1 and "sha256" in run["task_facts"]["sources"][0]
    assert str(tmp_path) not in out.read_text(), "no machine's paths in result files"


def test_every_line_has_both_marks_and_both_token_counts(
    engine: ripple.Engine, data: Path, tmp_path: Path
) -> None:
    task, out = find_task("gsm8k", data, shots=0), tmp_path / "r.jsonl"
    summary = go(engine, out, None, task, length=24)
    lines = [line for line in read_lines(out) if line["kind"] == "item"]
    tokenizer, config = engine.tokenizer, engine.model.config
    assert tokenizer is not None
    for line, item in zip(sorted(lines, key=lambda row: row["item"]), task.test_items(), strict=True):
        (verdict,) = task.judge_many([item], [line["text"]])
        assert line["marks"] == verdict.marks and line["found"] == verdict.found
        assert line["right"] is line["marks"]["flexible"]
        ids = engine.generate(item.prompt, decoder="confidence", length=24, block=8).token_ids
        whole = cut(tokenizer.decode(ids, skip_special=False), task.stops_for(False))
        assert line["tokens_fast_dllm"] == sum(i != config.end_ids[0] for i in tokenizer.encode(whole))
        ends = [place for place, token in enumerate(ids) if token in config.end_ids]
        assert line["new_tokens"] == (ends[0] + 1 if ends else len(ids))
        assert line["seconds"] > 0 and line["engine_seconds"] > 0 and len(line["environment"]) == 12
    assert summary.marks["flexible"] == summary.accuracy and set(summary.marks) == {"strict", "flexible"}
    assert summary.tokens_fast_dllm == sum(line["tokens_fast_dllm"] for line in lines) / 3
    assert summary.tps_fast_dllm == pytest.approx(summary.tps * summary.tokens_fast_dllm / summary.new_tokens)


def test_a_mark_or_count_that_a_line_lacks_is_not_averaged(
    engine: ripple.Engine, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r.jsonl"
    go(engine, out, None, find_task("gsm8k", data, shots=0), length=8)
    run = read_run(str(out))
    del run.items[1]["marks"]["strict"]
    run.items[2]["tokens_fast_dllm"] = None
    summary = summarize(run)
    assert (summary.n, list(summary.marks), summary.tokens_fast_dllm) == (3, ["flexible"], None)


def test_the_closing_table_shows_both(
    data: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    how = ["--model", str(checkpoint), "--device", "cpu", "--length", "8", "--out", str(tmp_path / "r.jsonl")]
    assert main(["eval", "--task", "gsm8k", "--data", str(data), "--shots", "0", *how]) == 0
    shown = capsys.readouterr().out
    assert "by mark" in shown and "strict" in shown and "flexible" in shown
    assert shown.count("by Fast-dLLM's count") == 2


def test_other_shots_are_another_run(data: Path) -> None:
    facts = [find_task("gsm8k", data, shots=n).facts(chat=False) for n in (0, 1)]
    assert facts[0] != facts[1] and facts[0]["task_stops"]
    assert find_task("words").facts(chat=False) == {}
