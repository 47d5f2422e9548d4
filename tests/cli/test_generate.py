"""`ripple generate` and `ripple compare` on a small random checkpoint."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

import ripple
from ripple.cli.compare import first_difference
from tests.cli.conftest import Cli

KEYS = {
    "text", "token_ids", "new_tokens", "nfe", "nfe_normal", "nfe_lookahead", "rows", "seconds", "finish",
    "decoder", "fields",
}  # fmt: skip


def test_json_equals_the_library(generate: Cli, checkpoint: Path) -> None:
    done = generate("hello", "--json", "--length", 40, "--block", 16, "--cache", "dual", "--lam", "0.2")
    found = json.loads(done.out)
    assert done.code == 0 and done.err == "" and set(found) == KEYS
    expected = ripple.load(checkpoint, device="cpu").generate(
        "hello", decoder=ripple.RPS(lam=0.2), length=40, block=16, cache="dual"
    )
    assert found["token_ids"] == expected.token_ids and found["text"] == expected.text
    assert (found["nfe_normal"], found["nfe_lookahead"]) == (expected.nfe_normal, expected.nfe_lookahead)
    assert found["nfe"] == expected.nfe and found["decoder"] == "rps" and found["fields"]["lam"] == 0.2


def test_people_see_text_and_counts(generate: Cli) -> None:
    done = generate("hello", "--decoder", "default")
    assert done.code == 0 and "NFE 8 (8 normal, 0 lookahead)" in done.out
    assert "tokens/s" in done.out and "\x1b" not in done.out


def test_ways_to_give_a_prompt(generate: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text("hello\n")
    plain = json.loads(generate("hello", "--json").out)["token_ids"]
    assert json.loads(generate("--prompt-file", path, "--json").out)["token_ids"] == plain
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    assert json.loads(generate("-", "--json").out)["token_ids"] == plain
    assert json.loads(generate("hello", "--chat", "--json").out)["token_ids"] != plain
    assert len(json.loads(generate("--ids", "1,2,3", "--json").out)["token_ids"]) == 8


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "Give one prompt"),
        (["hi", "--ids", "1"], "got 2."),
        ([""], "The prompt is empty"),
        (["--ids", "1,x"], "--ids must be whole numbers"),
        (["--ids", "100000"], "outside the vocabulary"),
        (["--ids", "1", "--chat"], "--chat wraps text"),
        (["--prompt-file", "/nowhere/at/all"], "Cannot read the prompt /nowhere/at/all"),
        (["hi", "--trace", "/nowhere/at/all.jsonl"], "Cannot write the trace"),
        (["hi", "--decoder", "confidance"], "Did you mean 'confidence'?"),
        (["hi", "--dtype", "float23"], "Did you mean 'float32'?"),
        (["hi", "--device", "gpu9"], "Unknown device 'gpu9'"),
    ],
)
def test_bad_input(generate: Cli, argv: list[str], sentence: str) -> None:
    done = generate(*argv)
    assert done.code == 2 and sentence in done.err and done.err.count("\n") == 1 and done.out == ""


def test_bad_model(cli: Cli, tmp_path: Path) -> None:
    done = cli("generate", "hi", "--model", tmp_path)
    assert done.code == 2 and "holds no config.json" in done.err


def test_without_a_model_it_says_so(cli: Cli) -> None:
    done = cli("generate", "hi", "--length", 8, "--json")
    assert done.code == 0 and len(json.loads(done.out)["token_ids"]) == 8
    assert "no --model was given" in done.err and "embedded" in done.err


def test_trace_is_written_whole(generate: Cli, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    found = json.loads(generate("hello", "--trace", path, "--json").out)
    events = ripple.read_trace(path)
    assert sum(event.kind == "forward" for event in events) == found["nfe"]
    assert events[-1].data["token"] == found["token_ids"]
    assert [p.name for p in tmp_path.iterdir()] == ["trace.jsonl"]


def test_watch_without_a_terminal_prints_as_usual(generate: Cli) -> None:
    done = generate("hello", "--watch")
    assert done.code == 0 and "NFE" in done.out and "\x1b" not in done.out


def test_compare(cli: Cli, checkpoint: Path) -> None:
    model = ("--model", checkpoint, "--length", 32)
    done = cli("compare", "hello", *model, "--json")
    table = json.loads(done.out)["rows"]
    assert [row["decoder"] for row in table] == ["default", "confidence", "lopa", "rps"]
    assert table[0]["nfe"] == 32 and table[0]["first_difference"] is None
    for row in table:
        assert (
            row["nfe_speedup"] == 32 / row["nfe"] and row["nfe"] == row["nfe_normal"] + row["nfe_lookahead"]
        )
        assert row["time_speedup"] == table[0]["seconds"] / row["seconds"]
    shown = cli("compare", "hello", *model, "--decoders", "default,default:k=2,rps/dream").out
    assert "default(k=2)" in shown and "rps(tau_pivot=0.95)" in shown and "2.00x" in shown


def test_compare_unknown_decoder(cli: Cli, checkpoint: Path) -> None:
    done = cli("compare", "hello", "--model", checkpoint, "--decoders", "default,lopaa")
    assert done.code == 2 and "Did you mean 'lopa'?" in done.err


def test_first_difference() -> None:
    assert first_difference([1, 2, 3], [1, 2, 3]) is None
    assert first_difference([1, 2, 3], [1, 5, 3]) == 1
    assert first_difference([1, 2, 3], [1, 2]) == 2


def test_demo_prints_a_table_and_what_is_next(cli: Cli) -> None:
    done = cli("demo", "--length", 32, "--per-family", 1)
    assert done.code == 0 and "Where to go next" in done.out
    assert all(name in done.out for name in ("default", "confidence", "lopa", "rps", "words", "programs"))
    found = json.loads(cli("demo", "--length", 32, "--per-family", 1, "--json").out)
    assert found["rows"][0]["nfe"] == 32 and found["rows"][0]["problems"] == 4
    assert found["rows"][3]["nfe_speedup"] > found["rows"][1]["nfe_speedup"] > 1


def test_bench(cli: Cli, monkeypatch: pytest.MonkeyPatch, checkpoint: Path) -> None:
    from ripple.bench import load_memory, overhead

    def measure(folder: Path | None = None, length: int = 128) -> dict[str, object]:
        return {"bench": "overhead", "length": length, "decoders": {"rps": {"steps": 3, "model_ms": 1.0}}}

    monkeypatch.setattr(overhead, "measure", measure)
    monkeypatch.setattr(load_memory, "measure", lambda folder=None: {"ratio": 1.01})
    assert json.loads(cli("bench", "overhead", "--length", 64, "--json").out)["length"] == 64
    assert json.loads(cli("bench", "load-memory", checkpoint, "--json").out) == {"ratio": 1.01}
    assert "model_ms" in cli("bench", "overhead").out
    assert "Did you mean 'overhead'?" in cli("bench", "overhed").err
    assert "Benchmark load-memory takes no length" in cli("bench", "load-memory", "--length", 64).err
    assert "does not exist" in cli("bench", "overhead", checkpoint / "no").err


@pytest.mark.slow
def test_load_memory_really_runs(cli: Cli, checkpoint: Path) -> None:
    assert json.loads(cli("bench", "load-memory", checkpoint, "--json").out)["bench"] == "load_memory"
