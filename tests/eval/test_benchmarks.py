"""Published benchmarks through the runner, on rows of our own in the publishers' formats."""

from __future__ import annotations

import json
from pathlib import Path

import huggingface_hub.constants
import pytest

import ripple
from ripple.analysis.lines import read_lines
from ripple.benchmarks import BENCHMARKS, cut
from ripple.cli import main
from ripple.eval import find_task, task_facts
from ripple.eval.results import read_run, summarize
from ripple.eval.run import evaluate
from ripple.tasks import TASKS

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


def test_a_benchmark_is_evaluated_with_its_checksums_in_every_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    how = ["--length", "16", "--block", "16", "--decoder", "confidence", "--out", str(out), "--json"]
    assert main(["eval", "--task", "gsm8k", "--data", str(data), "--shots", "1", *how]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["n"] == 3 and "sha256" in captured.err
    items = [line for line in read_lines(out) if line["kind"] == "item"]
    assert [line["shots"] for line in items] == [1, 1, 1]
    assert all("sha256" in line["sources"][0] and str(tmp_path) not in json.dumps(line) for line in items)


def test_every_line_has_both_marks_and_both_token_counts(
    engine: ripple.Engine, data: Path, tmp_path: Path
) -> None:
    task, out = find_task("gsm8k", data, shots=0), tmp_path / "r.jsonl"
    settings = ripple.Settings(decoder=ripple.Confidence(), length=24, block=8)
    found = evaluate(engine, task, settings, out, model="small", task_facts=task_facts(task, False))
    lines = [line for line in read_lines(out) if line["kind"] == "item"]
    text, config = engine.text, engine.model.config
    assert text is not None
    for line, item in zip(sorted(lines, key=lambda row: row["item"]), task.test_items(), strict=True):
        (verdict,) = task.details([item], [line["text"]])
        assert line["marks"] == verdict.marks and line["found"] == verdict.found
        assert line["right"] is line["marks"]["flexible"]
        ids = engine.generate(item.prompt, decoder="confidence", length=24, block=8).token_ids
        whole = cut(text.decode(ids, skip_special=False), task.stops)
        assert line["tokens_fast_dllm"] == sum(i != config.end_ids[0] for i in text.encode(whole))
        ends = [place for place, token in enumerate(ids) if token in config.end_ids]
        assert line["new_tokens"] == (ends[0] + 1 if ends else len(ids))
        assert line["seconds"] > 0 and line["wall_seconds"] > 0 and len(line["environment"]) == 12
    assert found.marks["flexible"] == found.accuracy and set(found.marks) == {"strict", "flexible"}
    assert found.tokens_fast_dllm == sum(line["tokens_fast_dllm"] for line in lines) / 3
    assert found.tokens_per_second_fast_dllm == pytest.approx(
        found.tokens_per_second * found.tokens_fast_dllm / found.new_tokens
    )


def test_old_lines_without_marks_are_still_summed_up(
    engine: ripple.Engine, data: Path, tmp_path: Path
) -> None:
    task, out = find_task("gsm8k", data, shots=0), tmp_path / "r.jsonl"
    settings = ripple.Settings(decoder=ripple.Confidence(), length=8, block=8)
    evaluate(engine, task, settings, out, model="small")
    lines = read_run(str(out))
    del lines[0]["marks"], lines[1]["tokens_fast_dllm"]
    found = summarize(lines)
    assert (found.n, found.marks, found.tokens_fast_dllm) == (3, {}, None)


def test_the_closing_table_shows_both(
    data: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    how = ["--model", str(checkpoint), "--device", "cpu", "--length", "8", "--out", str(tmp_path / "r.jsonl")]
    assert main(["eval", "--task", "gsm8k", "--data", str(data), "--shots", "0", *how]) == 0
    shown = capsys.readouterr().out
    assert "by mark" in shown and "strict" in shown and "flexible" in shown
    assert shown.count("by Fast-dLLM's count") == 2


def test_other_shots_are_another_run(data: Path) -> None:
    facts = [task_facts(find_task("gsm8k", data, shots=n), chat=False) for n in (0, 1)]
    assert facts[0] != facts[1] and facts[0]["task_stops"]
    assert task_facts(TASKS["words"], chat=False) == {}
